"""Disconnects clients that take nothing of their answers."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from headwater.api.limits.work import LIMITS_HIT, STALLED

TCP_INFO_BYTES: Final = 128
BYTES_ACKED_AT: Final = 120
"""Where `tcpi_bytes_acked` is in Linux's `struct tcp_info`: the bytes that the client's machine has acknowledged."""

logger = logging.getLogger(__name__)


class Connection(Protocol):
    """A connection of uvicorn's."""

    transport: asyncio.Transport


class _Taken(NamedTuple):
    """How much a client had taken of all its answers, and for how long it has taken no more."""

    size_bytes: int
    idle_s: float


class StalledClients:
    """Finds the connections of one server with something to send, of which their clients take nothing.

    uvicorn waits for such a client without a limit: a stream before it sends more, and a connection that is to be
    closed until all is sent. A client that reads slowly takes something now and then, and is kept. On systems other
    than Linux nobody is disconnected, because nothing says how much a client has taken.
    """

    def __init__(self, limit_s: float) -> None:
        """limit_s: how long a client may take nothing."""
        self._limit_s = limit_s
        self._taken: dict[Connection, _Taken] = {}
        self._looked_at_s = 0.0

    def disconnect(self, connections: Iterable[Connection], now_s: float) -> None:
        """Disconnect those that have taken nothing for too long; call it about once per second with a steady clock.

        If it was not called for longer, this process was paused, and could not give clients anything to take: that
        time counts as no more than a part of the limit.
        """
        passed_s, self._looked_at_s = min(now_s - self._looked_at_s, self._limit_s / 2), now_s
        taken: dict[Connection, _Taken] = {}
        for each in connections:
            if not each.transport.get_write_buffer_size():
                continue
            size_bytes = _acknowledged_bytes(each.transport)
            known = self._taken.get(each)
            if size_bytes is None or known is None or known.size_bytes != size_bytes:
                taken[each] = _Taken(size_bytes or 0, 0.0)
            elif known.idle_s + passed_s < self._limit_s:
                taken[each] = _Taken(size_bytes, known.idle_s + passed_s)
            else:
                client = each.transport.get_extra_info("peername")
                logger.warning("disconnected %s, which has read nothing for %g s", client, self._limit_s)
                LIMITS_HIT.labels(STALLED).inc()
                each.transport.abort()
        self._taken = taken


def _acknowledged_bytes(transport: asyncio.Transport) -> int | None:
    """None if the system does not say: an older kernel gives less, and an emulated one may leave it 0."""
    if not hasattr(socket, "TCP_INFO"):
        return None
    try:
        info = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    except OSError:
        return None
    if len(info) < TCP_INFO_BYTES:
        return None
    (acknowledged,) = struct.unpack_from("=Q", info, BYTES_ACKED_AT)
    return int(acknowledged) or None
