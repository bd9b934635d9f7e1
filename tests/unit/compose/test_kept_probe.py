"""Probes that keep their connection: one connection for many, and a new one after it broke."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headwater.compose.probes import KeptProbe


class Server:
    """A server that can go away, and break connections when it comes back."""

    def __init__(self) -> None:
        self.is_up, self.connected, self.closed = True, 0, 0
        self.broken: set[int] = set()

    @contextmanager
    def connect(self) -> Iterator[int]:
        self._check()
        self.connected += 1
        yield self.connected
        self.closed += 1

    def ask(self, connection: int) -> None:
        self._check()
        if connection in self.broken:
            raise ConnectionResetError("the connection broke")

    def _check(self) -> None:
        if not self.is_up:
            raise ConnectionRefusedError("first line\nthe server is away")


def test_many_probes_need_one_connection() -> None:
    server = Server()
    probe = KeptProbe(server.connect, server.ask, (OSError,))
    assert [probe() for _ in range(5)] == [None] * 5
    assert (server.connected, server.closed) == (1, 0)
    del probe
    assert server.closed == 1


def test_a_server_that_was_restarted_between_two_probes_can_serve_requests() -> None:
    server = Server()
    probe = KeptProbe(server.connect, server.ask, (OSError,))
    probe()
    server.broken.add(1)
    assert probe() is None
    assert (server.connected, server.closed) == (2, 1)


def test_a_server_that_is_away_cannot_serve_requests_until_it_is_back() -> None:
    server = Server()
    server.is_up = False
    probe = KeptProbe(server.connect, server.ask, (OSError,))
    assert probe() == "the server is away"
    server.is_up = True
    assert probe() is None
    server.is_up = False
    assert [probe(), probe()] == ["the server is away"] * 2
    assert (server.connected, server.closed) == (1, 1)
