"""Stacks of this folder's own, since its tests kill servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.compose.ports import free_ports
from headwater.compose.settings import StackSettings
from headwater.compose.stack import CAPTURING, Stack
from headwater.compose.state import own_folder
from headwater.eventlog.programs.backoff import Backoff
from tests.support.patience import patient

KILLED = Backoff(limit=100)
"""A long run kills a server many times, soon after each other."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """One process starts Kafka Connect. Modules with a mark of their own share another, so that both end together; all
    of their tests are in the complete suite only, so that the one that decides starts one.
    """
    if item.get_closest_marker("xdist_group") is None:
        item.add_marker(pytest.mark.xdist_group("Kafka Connect"))


LIMITS_S = (
    "headwater.eventlog.capturing.kafka_connect.RETRY_S",
    "headwater.eventlog.capturing.kafka_connect.TIMEOUT_S",
    "headwater.eventlog.capturing.operated.CAPTURED_S",
    "headwater.eventlog.capturing.operated.HOLD_S",
    "headwater.eventlog.capturing.operated.RUNNING_S",
    "headwater.eventlog.capturing.postgres.engine.SLOT_FREE_S",
    "headwater.eventlog.capturing.sweeping.TIMEOUT_S",
    "headwater.eventlog.kafka.admin.ANSWER_S",
    "headwater.eventlog.kafka.log.TIMEOUT_S",
)


@pytest.fixture(scope="module", autouse=True)
def patience() -> Iterator[None]:
    """Commands wait as long as tests do: on a busy machine, a connector may need a minute to start or to stop."""
    with patient(*LIMITS_S):
        yield


@pytest.fixture(scope="session")
def servers() -> Iterator[Stack]:
    """The servers, all healthy at the beginning of each test; started by the first test that needs them."""
    with own_folder() as folder, Stack(StackSettings(folder, free_ports()), CAPTURING, KILLED) as stack:
        yield stack


@pytest.fixture(scope="module")
def capturing(request: pytest.FixtureRequest) -> Stack:
    """The servers that capture a database, of the group of this module: without stores of views if it is the other."""
    is_other = request.node.get_closest_marker("xdist_group") is not None
    stack: Stack = request.getfixturevalue("other_servers" if is_other else "servers")
    return stack


@pytest.fixture(scope="session")
def other_servers() -> Iterator[Stack]:
    """Only the servers that capture a database, without stores of views."""
    parts = ("kafka", "postgres", "connect")  # Kafka Connect starts with the database of the sample
    with own_folder() as folder, Stack(StackSettings(folder, free_ports()), parts, KILLED) as stack:
        yield stack
