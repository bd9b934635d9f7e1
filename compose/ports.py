"""Free ports, for stacks that live beside the default one: the demo's, the tests'."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from dataclasses import fields

from compose.settings import HOST, Ports


def free_ports() -> Ports:
    """Ports for a stack that nothing listens on now, all different."""
    with ExitStack() as held:
        return Ports(**{field.name: _bind(held) for field in fields(Ports)})


def free_port() -> int:
    """A port that nothing listens on now."""
    with ExitStack() as held:
        return _bind(held)


def _bind(held: ExitStack) -> int:
    probe = held.enter_context(socket.socket())
    probe.bind((HOST, 0))
    port: int = probe.getsockname()[1]
    return port
