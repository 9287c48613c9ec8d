"""Serves a page on this machine while a run goes on; whatever happens to it, the run goes on."""

import hmac
import ipaddress
import json
import logging
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from gradslide._support.errors import InputError
from gradslide.report.live import LivePage
from gradslide.report.page import page

LOOPBACK = "127.0.0.1"
# A page that asked within so many seconds is still open; it is given the end of the run, but not waited for longer.
_OPEN, _LINGER, _LOOK = 3.0, 4.0, 0.05
# Seconds for a request to come, and requests at the same time.
_PATIENCE, _MOST_CONNECTIONS = 10.0, 32
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

_log = logging.getLogger("gradslide.live")


def parsed_address(text: str) -> tuple[str, int]:
    """HOST:PORT, HOST or PORT; port 0 is any that is free."""
    host, _, port = text.rpartition(":") if ":" in text else ("", "", text) if text.isdigit() else (text, "", "0")
    is_port = port.isascii() and port.isdigit() and int(port) <= 65_535
    if not text or not is_port or ":" in host or not host.isprintable():
        raise InputError("the address of a live page must be HOST:PORT", repr(text), "for example 127.0.0.1:8000")
    return host or LOOPBACK, int(port)


class Server:
    """url: what to open. Elsewhere than on loopback it carries a token, without which nothing is
    told.
    """

    def __init__(self, live: LivePage, address: str) -> None:
        host, port = parsed_address(address)
        # What a page lacks is told before the run starts.
        page(live.content()[1], live=True)
        self.live = live
        self.is_local = _is_loopback(host)
        self.token = "" if self.is_local else secrets.token_urlsafe(16)
        self.told = -1
        self.asked = 0.0
        try:
            self._http = _Listener((host, port), self)
        except OSError as error:
            got = f"{host}:{port} ({error.strerror or error})"
            raise InputError("a live page needs a free address of this machine", got, "choose another") from None
        self.url = f"http://{host}:{self._http.server_port}/" + f"?token={self.token}" * bool(self.token)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(_LOOK,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Let open pages have the end of the run first."""
        self.live.finish()
        until = time.monotonic() + _LINGER
        while time.monotonic() < min(until, self.asked + _OPEN) and self.told < self.live.version:
            time.sleep(_LOOK)
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@contextmanager
def served(live: LivePage, address: str) -> Iterator[str]:
    """The page's address, as long as the block lasts."""
    server = Server(live, address)
    try:
        yield server.url
    finally:
        server.close()


class _Listener(ThreadingHTTPServer):
    """Connections beyond a few are turned away: the run needs its files and threads."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], owner: Server) -> None:
        self.owner = owner
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A browser that closes the connection is of no concern to the user who runs something.
        _log.debug("a request of %s failed", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Listener
    timeout = _PATIENCE

    def do_GET(self) -> None:
        server, address = self.server.owner, urlsplit(self.path)
        given = parse_qs(address.query).get("token", [""])[0]
        if not self._is_welcome(given):
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", b"open the address that the run printed\n")
            return
        if address.path in ("/metrics", "/health"):
            # Programs that look on do not keep the server waiting at the end.
            body = "ok\n" if address.path == "/health" else server.live.metrics()
            self._answer(HTTPStatus.OK, "text/plain; version=0.0.4", body.encode())
            return
        server.asked = time.monotonic()
        if address.path == "/":
            self._answer(HTTPStatus.OK, "text/html", page(server.live.content()[1], live=True).encode())
        elif address.path == "/data.json":
            self._tell(server)
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"there are /, /data.json, /metrics and /health here\n")

    def _tell(self, server: Server) -> None:
        """The content, unless the page has it already."""
        version = server.live.version
        if self.headers.get("If-None-Match") == _tag(version):
            self._answer(HTTPStatus.NOT_MODIFIED, "application/json", b"")
            server.told = version
            return
        version, content = server.live.content()
        self._answer(HTTPStatus.OK, "application/json", json.dumps(content, allow_nan=False).encode(), _tag(version))
        server.told = version

    def _is_welcome(self, token: str) -> bool:
        """Whether to answer: on loopback, requests that name this machine (a page from elsewhere
        cannot send one); else requests with the token."""
        owner = self.server.owner
        if not owner.is_local:
            return hmac.compare_digest(token.encode(), owner.token.encode())
        return _is_loopback(self.headers.get("Host", "").partition(":")[0].lower())

    def _answer(self, status: HTTPStatus, kind: str, body: bytes, tag: str = "") -> None:
        self.send_response(status)
        headers = {**_HEADERS, "Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body))}
        for name, value in {**headers, **({"ETag": tag} if tag else {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the address of a request holds the token."""


def _tag(version: int) -> str:
    return f'"{version}"'


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
