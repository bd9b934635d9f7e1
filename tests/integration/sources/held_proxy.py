"""A TCP proxy in front of a real server that can hold new connections, so that a test acts between two of a client."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from tests.waiting import BOUND_S


class HeldProxy:
    """Forwards a local port to `host:port`; a connection that the server refuses is closed."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._changed = threading.Condition()
        self._passing: int | None = None
        self._held = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def hold_after(self, connections: int) -> None:
        """Let this many new connections pass, and hold all later ones until `release`."""
        with self._changed:
            self._passing, self._held = connections, 0

    def wait_held(self) -> None:
        """Return once a connection is held."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._held, BOUND_S), "no connection came to be held"

    def release(self) -> None:
        """Forward what is held, and all that comes."""
        with self._changed:
            self._passing = None
            self._changed.notify_all()

    def close(self) -> None:
        self.release()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with self._changed:
            if self._passing:
                self._passing -= 1
            elif self._passing == 0:
                self._held += 1
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._passing is None)
        with client, suppress(OSError), socket.create_connection(self._server) as server:
            back = threading.Thread(target=forward, args=(server, client), daemon=True)
            back.start()
            forward(client, server)
            back.join()


def forward(source: socket.socket, sink: socket.socket) -> None:
    """Forward what comes until either side ends, then end both."""
    with suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)
    for each in (source, sink):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
