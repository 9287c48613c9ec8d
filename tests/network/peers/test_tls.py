"""Mutual TLS: what becomes of connections that break."""

import gc
import socket
import struct
import warnings

import pytest

from gradslide.network.peers.keys import key_pair
from gradslide.network.peers.tls import tls_context


def test_a_connection_that_was_reset_leaves_no_open_socket():
    """`ssl` leaves it to the garbage collector, which warns."""
    context = tls_context(key_pair(bytes(32)), [key_pair(bytes(range(32))).public], server=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        # Closed without lingering, a connection is reset.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        accepted.setblocking(False)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            with pytest.raises(OSError):
                context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
            gc.collect()
        assert seen == []
