"""Free ports, for stacks in addition to the default one: those of the demo and the tests."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress
from dataclasses import fields
from pathlib import Path
from typing import Final

from compose.settings import HOST, Ports

FIRST: Final = 20_000
"""Above the default ports of Headwater and its servers, which may be started later."""
ATTEMPTS: Final = 100
_OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports() -> Ports:
    """Different ports for a stack, on which nothing listens now."""
    with ExitStack() as held:
        return Ports(**{field.name: _bind(held) for field in fields(Ports)})


def free_port() -> int:
    """A port on which nothing listens now."""
    with ExitStack() as held:
        return _bind(held)


def _bind(held: ExitStack) -> int:
    """Bind a port from which the system opens no connections: one of these could take it while a server restarts."""
    chance = random.SystemRandom()  # several processes may have the same seed
    for _ in range(ATTEMPTS if (end := _first_outgoing()) > FIRST else 0):
        with suppress(OSError):
            return _bound(held, chance.randrange(FIRST, end))
    return _bound(held, 0)


def _bound(held: ExitStack, port: int) -> int:
    probe = held.enter_context(socket.socket())
    probe.bind((HOST, port))
    found: int = probe.getsockname()[1]
    return found


def _first_outgoing() -> int:
    """The first port from which connections are opened; 0 if it is not known."""
    try:
        return int(_OUTGOING.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0
