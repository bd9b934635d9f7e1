"""A TCP proxy in front of a real server that can be cut, as a network is."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from tests.support.proxy import Proxy


class CutProxy(Proxy):
    """Forwards a local port to `host:port`; while it is cut, connections are refused and open ones are dead."""

    def __init__(self, host: str, port: int) -> None:
        self._changing = threading.Lock()
        self._is_cut = False
        self._open: set[socket.socket] = set()
        super().__init__(host, port)

    def cut(self) -> None:
        with self._changing:
            self._is_cut = True
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        with self._changing:
            self._is_cut = False

    def close(self) -> None:
        self.cut()
        super().close()

    def serve(self, client: socket.socket) -> None:
        with self._changing:
            if self._is_cut:
                client.close()
                return
            self._open.add(client)
        try:
            super().serve(client)
        finally:
            with self._changing:
                self._open.discard(client)
