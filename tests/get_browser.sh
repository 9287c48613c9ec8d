#!/bin/sh
# Chromium and its driver, from the system's packages; nothing is done where they are there already.
set -eu

has_browser() {
    command -v chromedriver >/dev/null && {
        command -v chromium || command -v chromium-browser || command -v google-chrome
    } >/dev/null
}

if has_browser; then
    echo "there is a browser: $(chromedriver --version | cut -d' ' -f1,2)"
    exit 0
fi
if ! command -v apt-get >/dev/null; then
    echo "install Chromium and its driver (chromedriver) with your system's packages; the tests find them on PATH" >&2
    exit 1
fi
as_root=""
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "ask an administrator for: apt-get install chromium chromium-driver" >&2; exit 1; }
    as_root="sudo"
fi
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -qq
$as_root apt-get install -y -qq --no-install-recommends chromium chromium-driver fonts-dejavu-core
has_browser
