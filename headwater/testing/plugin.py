"""Fixtures of pytest for tests on a running deployment. In the `conftest.py` of the root of your tests:

    pytest_plugins = ["headwater.testing.plugin"]

It needs the extras `testing` and `stack`, or `all`. Nothing starts, and no server's client is imported, before a test
asks for `deployment`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headwater.compose.settings import StackSettings
    from headwater.compose.testing.deployment import RunningDeployment


@pytest.fixture(scope="session")
def headwater_modules() -> Sequence[str]:
    """The modules under test: HEADWATER_MODULES, else the project's; define this fixture to choose others."""
    from headwater.eventlog.programs.modules import VARIABLE, read_modules  # noqa: PLC0415 - nothing before it is needed

    return read_modules(os.environ.get(VARIABLE, ""))


@pytest.fixture(scope="session")
def headwater_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StackSettings]:
    """Kafka, PostgreSQL, Elasticsearch and Valkey for all tests of the run, those of other processes of xdist, too."""
    from headwater.eventlog.programs.command_line import refuse_missing  # noqa: PLC0415 - likewise

    refuse_missing("headwater.testing.plugin", "all", "psutil", "fastapi", "pyspark")
    from headwater.compose.testing.servers import chosen_servers, shared_servers  # noqa: PLC0415

    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with shared_servers(folder, chosen_servers(os.environ)) as servers:
        yield servers


@pytest.fixture(scope="session")
def deployment(
    headwater_modules: Sequence[str], headwater_servers: StackSettings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningDeployment]:
    """A running deployment of the modules under test."""
    from headwater.compose.testing.deployment import running_deployment  # noqa: PLC0415 - likewise

    state: Path = tmp_path_factory.mktemp("headwater")
    with running_deployment(headwater_servers, headwater_modules, state) as running:
        yield running
