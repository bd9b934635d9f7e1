"""TCP proxies in front of a real server that can hold what a client sends, so that a test acts in between."""

from __future__ import annotations

import socket
import threading

from tests.support.proxy import Proxy
from tests.support.waiting import BOUND_S


class HeldProxy(Proxy):
    """Forwards a local port to `host:port`; a connection that the server refuses is closed."""

    def __init__(self, host: str, port: int) -> None:
        self._changed = threading.Condition()
        self._passing: int | None = None
        self._held = 0
        super().__init__(host, port)

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
        super().close()

    def serve(self, client: socket.socket) -> None:
        with self._changed:
            if self._passing:
                self._passing -= 1
            elif self._passing == 0:
                self._held += 1
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._passing is None)
        super().serve(client)


class HeldRequests(Proxy):
    """Forwards a local port to an HTTP server at `host:port`, until requests have come that begin with each of
    `requests`, one after another: the last of these, and what follows it, never arrives.
    """

    def __init__(self, host: str, port: int, *requests: str) -> None:
        self._awaited = [request.encode() for request in requests]
        super().__init__(host, port)

    @property
    def is_holding(self) -> bool:
        """Whether the last one has come."""
        return not self._awaited

    def forward(self, data: bytes, server: socket.socket) -> None:
        if self._awaited and data.startswith(self._awaited[0]):  # a client sends the next one after an answer
            del self._awaited[0]
        if self._awaited:
            super().forward(data, server)
