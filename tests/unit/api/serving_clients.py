"""A server of a service in this process, and clients of it over real sockets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from headwater.api.app import create_app
from headwater.api.limits import Limits
from headwater.api.server.serving import Server, config_of
from headwater.api.tls import TlsFiles
from tests.support.waiting import eventually
from tests.unit.api.fake_service import FakeService


@contextmanager
def serving(
    service: FakeService, limits: Limits, tls: TlsFiles | None = None
) -> Iterator[tuple[Server, tuple[str, int]]]:
    """A server with these limits of connections, and its address."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        server = Server(config_of(create_app(service)), service.feeds, limits, tls)
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            yield server, listening.getsockname()
        finally:
            server.should_exit = True
            thread.join(240)
            assert not thread.is_alive()


def connected(address: tuple[str, int]) -> socket.socket:
    """A client with a small buffer."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    client.settimeout(240)
    client.connect(address)
    return client


def gone(server: Server) -> Any:
    """Wait until no client is connected."""
    return eventually(lambda: not server.server_state.connections, "the client is disconnected")
