"""Free ports, for stacks in addition to the default one: those of the demo and the tests."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from dataclasses import fields

from compose.settings import HOST, Ports


def free_ports() -> Ports:
    """Different ports for a stack, on which nothing listens now."""
    with ExitStack() as held:
        return Ports(**{field.name: _bind(held) for field in fields(Ports)})


def free_port() -> int:
    """A port on which nothing listens now."""
    with ExitStack() as held:
        return _bind(held)


def _bind(held: ExitStack) -> int:
    probe = held.enter_context(socket.socket())
    probe.bind((HOST, 0))
    port: int = probe.getsockname()[1]
    return port
