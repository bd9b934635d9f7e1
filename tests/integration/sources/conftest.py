"""Stacks of this folder's own, since its tests kill servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compose.ports import free_ports
from compose.settings import StackSettings
from compose.stack import CAPTURING, Stack
from compose.testing.shared import own_folder
from eventlog.capturing import connector_states, control_topics, holding, kafka_connect, sweeping
from eventlog.capturing.postgres import database as postgres_database
from eventlog.kafka import admin
from eventlog.programs.backoff import Backoff
from tests.support.waiting import BOUND_S

KILLED = Backoff(limit=100)
"""A long run kills a server many times, soon after each other."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """One process starts Kafka Connect. Modules with a mark of their own share another, so that both end together."""
    if item.get_closest_marker("xdist_group") is None:
        item.add_marker(pytest.mark.xdist_group("Kafka Connect"))


BOUNDS = (
    (admin, "ANSWER_S"),
    (connector_states, "RUNNING_S"),
    (connector_states, "CAPTURED_S"),
    (control_topics, "TIMEOUT_S"),
    (holding, "HOLD_S"),
    (kafka_connect, "TIMEOUT_S"),
    (kafka_connect, "RETRY_S"),
    (postgres_database, "SLOT_FREE_S"),
    (sweeping, "TIMEOUT_S"),
)


@pytest.fixture(scope="module", autouse=True)
def patient() -> Iterator[None]:
    """Commands wait as long as tests do: on a busy machine, a connector may need a minute to start or to stop."""
    with pytest.MonkeyPatch.context() as patched:
        for module, name in BOUNDS:
            patched.setattr(module, name, BOUND_S)
        yield


@pytest.fixture(scope="session")
def servers() -> Iterator[Stack]:
    """The servers, all healthy at the beginning of each test; started by the first test that needs them."""
    with own_folder() as folder, Stack(StackSettings(folder, free_ports()), CAPTURING, KILLED) as stack:
        yield stack


@pytest.fixture(scope="session")
def capturing() -> Iterator[Stack]:
    """Only the servers that capture a database, without stores of views."""
    parts = ("kafka", "postgres", "connect")  # Kafka Connect starts with the database of the sample
    with own_folder() as folder, Stack(StackSettings(folder, free_ports()), parts, KILLED) as stack:
        yield stack
