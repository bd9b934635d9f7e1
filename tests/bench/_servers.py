"""The servers that benches use: those that run at the configured addresses, or else some of their own."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from headwater.compose.ports import free_ports
from headwater.compose.settings import StackSettings
from headwater.compose.stack import Stack

SERVERS: Final = ("HEADWATER_KAFKA", "HEADWATER_POSTGRES", "HEADWATER_ELASTICSEARCH", "HEADWATER_VALKEY")
"""Of these, each bench needs one or more."""


class NotThere(Exception):
    """A variable names a server that does not answer: measuring another one instead would mislead."""

    def __init__(self, variable: str, address: str) -> None:
        super().__init__(f"nothing answers at {variable}={address}: start it, or unset {variable}")


@contextmanager
def servers() -> Iterator[str]:
    """Let `HEADWATER_KAFKA` and the like lead to servers that answer, here and in all processes that are started.

    Gives "running" for those that ran before, or "own" for those that are started for this block, on free ports.
    Raises NotThere.
    """
    wanted = addresses(os.environ)
    missing = [name for name, address in wanted.items() if not answers(address)]
    for name in missing:
        if name in os.environ:
            raise NotThere(name, wanted[name])
    if not missing:
        os.environ.update(wanted)
        yield "running"
        return
    print("starting Kafka, PostgreSQL, Elasticsearch and Valkey", file=sys.stderr, flush=True)
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="headwater-bench-")))
        folder.chmod(0o711)  # PostgreSQL's user must pass it, if this is root
        ports = free_ports()
        stack = running.enter_context(Stack(StackSettings(folder, ports)))
        os.environ.update(stack.endpoints.environment())
        os.environ.update({ports.variable(name): str(port) for name, port in ports.model_dump().items()})
        yield "own"


def addresses(environ: Mapping[str, str]) -> dict[str, str]:
    """By variable, where each server is to be: as the variable says, else where `make up` starts it."""
    usual = StackSettings.from_environ(environ).endpoints.environment()
    return {name: environ.get(name) or usual[name] for name in SERVERS}


def answers(address: str) -> bool:
    """Whether something listens at every place of an address: a URL, or `host:port,host:port`."""
    places = urlsplit(address if "://" in address else f"kafka://{address}").netloc.rpartition("@")[2]
    return all(_listens(place) for place in places.split(","))


def _listens(place: str) -> bool:
    host, _, port = place.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=1):
            return True
    except (OSError, ValueError):
        return False
