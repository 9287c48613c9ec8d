#!/bin/sh
# For trying out on one machine. At real sites each one runs `gradslide keys new` itself, and sends its .public file.
set -e
cd "$(dirname "$0")"
for site in north east south west; do
    gradslide keys new "$site" --folder "$site"
done
for link in "north east" "east south" "south west" "west north"; do
    set -- $link
    cp "$1/$1.public" "$2/"
    cp "$2/$2.public" "$1/"
done
