"""What all tests share: a running local stack, and a log of one's own on it."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from compose.ports import free_ports
from compose.settings import HOST, StackSettings
from compose.stack import Stack
from eventlog import admin
from eventlog.settings import LogSettings

# a machine that has other work is slow: nothing that is timed may fail for that
settings.register_profile("untimed", parent=settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StackSettings]:
    """The stack that runs on the configured ports, or else one of the tests' own on free ports."""
    running = StackSettings.from_environ(os.environ)
    ports = running.ports
    if all(listens(port) for port in (ports.kafka, ports.postgres, ports.elasticsearch, ports.valkey)):
        yield running
        return
    own = StackSettings(tmp_path_factory.mktemp("stack"), free_ports())
    with Stack(own):
        yield own


@pytest.fixture
def log_settings(stack: StackSettings, tmp_path: Path) -> Iterator[LogSettings]:
    """A fresh deployment with topics of its own, which are deleted afterwards."""
    settings = LogSettings(
        environment=f"t_{uuid.uuid4().hex[:12]}", bootstrap=stack.endpoints.kafka, partitions=2, state=tmp_path
    )
    admin.prepare(settings)
    yield settings
    admin.remove(settings)


def listens(port: int) -> bool:
    """Whether something answers on a local port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0
