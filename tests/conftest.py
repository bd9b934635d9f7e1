"""What all tests share: a running local stack, and a log of one's own on it."""

from __future__ import annotations

import gc
import logging
import os
import socket
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

from compose.settings import HOST, StackSettings
from eventlog import admin
from eventlog.settings import LogSettings
from tests.support.seeds import choose_seed, load_profile, repeats
from tests.support.shared_stack import shared_stack

choose_seed()
load_profile()
# The JVMs of tests live for minutes: what their optimizing compiler would cost, it would not save. Without it a JVM has
# a fifth of the usual room for compiled code; Spark's was full, and spent a tenth of its time on sweeping it.
for _name in ("no_proxy", "NO_PROXY"):  # a proxy in the environment is not for servers on this machine
    os.environ[_name] = ",".join(filter(None, (os.environ.get(_name), "127.0.0.1,localhost")))
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m")


TOGETHER = {
    "tests/acceptance/": "a running service",
    "tests/integration/sources/test_captured_mariadb": "another Kafka Connect",  # or the others would take far longer
    "tests/integration/sources/": "Kafka Connect",
    "tests/integration/projections_spark/": "a Spark session",
    "tests/unit/projections_spark/": "a Spark session",
    "tests/integration/replay/test_refused_values": "another Spark session",
    "tests/integration/replay/test_replay_busy_partition": "another Spark session",
    "tests/integration/replay/test_replay_commands": "another Spark session",
    "tests/integration/replay/test_replay_interrupted": "another Spark session",
    "tests/integration/replay/test_replay_together": "another Spark session",
    "tests/integration/secured/": "another Spark session",
}
"""Folders and files, and what they share, so that one process runs them all; any other may run beside any other."""
LONGEST_FIRST = (
    "tests/integration/sources/",
    "tests/unit/projections_spark/",
    "tests/integration/projections_spark/",
    "tests/integration/replay/test_stream_views.py",
    "tests/integration/",
    "tests/acceptance/",
    "tests/contracts/",
    "tests/unit/",
)
"""What takes long begins first, and what takes little fills the end, so that all processes end together."""
ADAPTERS = {"kafka", "postgres", "elasticsearch", "valkey"}
"""Parameters of contract tests that run on a real server."""


class ByFile(LoadFileScheduling):  # type: ignore[misc]
    """Keeps the tests of a file, or of the folders that share something, in one process, which has started it."""

    def _split_scope(self, nodeid: str) -> str:
        shared = next((what for folder, what in TOGETHER.items() if nodeid.startswith(folder)), None)
        return shared or str(super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    return ByFile(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """With `-n auto` two processes more than processors, since tests wait for servers half of their time.

    With `-n logical`, for tests without servers, one more: some wait for a process.
    """
    return (os.cpu_count() or 1) + (1 if config.option.numprocesses == "logical" else 2)


def pytest_report_header() -> str:
    return repeats()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need servers, and put them in the order of LONGEST_FIRST."""
    items.sort(key=_when)
    for item in items:
        parameters = {str(each) for each in item.callspec.params.values()} if hasattr(item, "callspec") else set()
        if {"stack", "servers"} & set(getattr(item, "fixturenames", ())) or parameters & ADAPTERS:
            item.add_marker(pytest.mark.servers)


def pytest_collection_finish() -> None:
    """What was imported and collected stays: the garbage collector need not look through it again and again."""
    gc.freeze()


def _when(item: pytest.Item) -> tuple[int, bool]:
    """Its place in LONGEST_FIRST, and in its folder after those with a JVM."""
    place = next((n for n, each in enumerate(LONGEST_FIRST) if item.nodeid.startswith(each)), -1)
    return place, item.get_closest_marker("jvm") is None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What a test logged may hold half a surrogate pair, which cannot be sent to the process that reports."""
    report = yield
    if report.failed:
        report.sections.append(("seed", repeats()))
    report.sections = [(title, text.encode(errors="backslashreplace").decode()) for title, text in report.sections]
    _keep_log_format()
    return report


def _keep_log_format() -> None:
    """Let PySpark's loggers propagate: pytest adds its handlers to those that do not, and these change their format."""
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger) and logger.name.endswith("QueryContextLogger"):
            logger.propagate = True


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StackSettings]:
    """The stack that runs on the configured ports, or else one of the tests' own on free ports."""
    running = StackSettings.from_environ(os.environ)
    ports = running.ports
    if all(listens(port) for port in (ports.kafka, ports.postgres, ports.elasticsearch, ports.valkey)):
        yield running
        return
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with shared_stack(folder) as own:
        yield own


@pytest.fixture
def log_settings(stack: StackSettings, tmp_path: Path) -> Iterator[LogSettings]:
    """A fresh deployment with topics of its own, which are deleted afterwards."""
    settings = LogSettings(
        environment=f"t_{uuid.uuid4().hex[:12]}",
        bootstrap=stack.endpoints.kafka,
        partitions=2,
        state=tmp_path,
        modules=("listings",),
    )
    admin.prepare(settings)
    yield settings
    admin.remove(settings)


def listens(port: int) -> bool:
    """Whether something answers on a local port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((HOST, port)) == 0
