"""Free ports, for stacks in addition to the default one: those of the demo and the tests."""

from __future__ import annotations

import fcntl
import json
import os
import random
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from headwater.compose.settings import HOST, Ports
from headwater.projections.spark.setup.jars import cache_directory

FIRST: Final = 20_000
"""Above the default ports of Headwater and its servers, which may be started later."""
ATTEMPTS: Final = 100
GIVEN_S: Final = 600.0
"""How long a port is given to nobody else: the last server of a stack listens long after its port was chosen."""
_GIVEN = "ports.json"
_OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports() -> Ports:
    """Different ports for a stack, on which nothing listens now."""
    with ExitStack() as held:
        return Ports.model_validate({name: _bind(held) for name in Ports.model_fields})


def free_port() -> int:
    """A port on which nothing listens now."""
    return free_ports_in_a_row(1)


def is_free(port: int) -> bool:
    """Whether nothing listens on this port now."""
    try:
        with ExitStack() as held:
            _bound(held, port)
    except OSError:
        return False
    return True


def free_ports_in_a_row(number: int) -> int:
    """The first of so many ports on which nothing listens now."""
    with ExitStack() as held:
        return _bind(held, number)


def _bind(held: ExitStack, number: int = 1) -> int:
    """Bind ports in a row from which the system opens no connections: one of these could take a port while its server
    restarts. Returns the first one.
    """
    chance = random.SystemRandom()  # several processes may have the same seed
    with _given() as given:
        places = max(0, _first_outgoing() - number + 1 - FIRST)
        chosen = (FIRST + chance.randrange(places) for _ in range(ATTEMPTS if places else 0))
        for wanted in (*chosen, *([0] * ATTEMPTS)):  # 0: the system chooses one
            if any(str(port) in given for port in range(wanted, wanted + number)):
                continue
            with suppress(OSError), ExitStack() as bound:
                first = _bound(bound, wanted)
                for port in range(first + 1, first + number):
                    _bound(bound, port)
                given |= {str(port): time.time() for port in range(first, first + number)}
                held.push(bound.pop_all())
                return first
    raise OSError(f"no {number} ports in a row are free")


@contextmanager
def _given() -> Iterator[dict[str, float]]:
    """The ports that processes of this user were given lately, each with when; what the block adds is kept.

    Where the file cannot be used, each process is on its own.
    """
    given: dict[str, float] = {}
    with ExitStack() as opened:
        file = None
        with suppress(OSError):
            folder = cache_directory(os.environ)
            folder.mkdir(parents=True, exist_ok=True)
            file = opened.enter_context((folder / _GIVEN).open("a+"))
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            with suppress(ValueError, TypeError, AttributeError):  # somebody else's file
                since = time.time() - GIVEN_S
                given = {port: at for port, at in json.load(file).items() if at > since}
        yield given
        if file is not None:
            file.seek(0)
            file.truncate()
            json.dump(given, file)
            file.flush()


def _bound(held: ExitStack, port: int) -> int:
    probe = held.enter_context(socket.socket())
    probe.bind((HOST, port))
    bound_port: int = probe.getsockname()[1]
    return bound_port


def _first_outgoing() -> int:
    """The first port from which connections are opened; 0 if it is not known."""
    try:
        return int(_OUTGOING.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0
