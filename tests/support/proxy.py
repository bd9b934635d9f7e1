"""A TCP proxy in front of a real server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress


class Proxy:
    """Listens at a local port, `port`, and serves each connection in a thread of its own; see `serve`."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def serve(self, client: socket.socket) -> None:
        """Forward a connection to the server, until either side ends; one that the server refuses is closed."""
        with client, suppress(OSError), socket.create_connection(self._server) as server:
            back = threading.Thread(target=_forward, args=(server, client, socket.socket.sendall), daemon=True)
            back.start()
            _forward(client, server, lambda to, data: self.forward(data, to))
            back.join()

    def forward(self, data: bytes, server: socket.socket) -> None:
        """Send what a client has sent to the server."""
        server.sendall(data)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self.serve, args=(client,), daemon=True).start()


def _forward(source: socket.socket, sink: socket.socket, send: Callable[[socket.socket, bytes], object]) -> None:
    """Forward what comes until either side ends, then end both."""
    with suppress(OSError):
        while data := source.recv(65_536):
            send(sink, data)
    for each in (source, sink):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
