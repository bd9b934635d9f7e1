"""What all tests share: a running local stack, and a log of one's own on it."""

from __future__ import annotations

import gc
import logging
import os
import socket
import sys
import threading
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.compose.settings import HOST, StackSettings
from headwater.compose.testing.servers import SERVERS, chosen_servers, shared_servers
from headwater.eventlog.kafka import admin
from headwater.eventlog.kafka import log as kafka
from headwater.eventlog.settings import LogSettings
from tests.support.scheduling import ByGroup, Seconds, longest_first
from tests.support.seeds import choose_seed, load_profile, repeats
from tests.support.waiting import BOUND_S

choose_seed()
load_profile()
for _name in ("no_proxy", "NO_PROXY"):  # a proxy in the environment is not for servers on this machine
    os.environ[_name] = ",".join(filter(None, (os.environ.get(_name), "127.0.0.1,localhost")))
# Some images turn bytecode files off; then each of the many processes would compile everything that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# The JVMs of tests live for minutes: what their optimizing compiler would cost, it would not save. Without it a JVM has
# a fifth of the usual room for compiled code; Spark's was full, and spent a tenth of its time on sweeping it.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m")

# At its own limit, of 700 new objects, the garbage collector took a sixth of the time of tests that each make an API.
gc.set_threshold(10_000)

SECONDS = pytest.StashKey[Seconds]()
ADAPTERS = {"kafka", "postgres", "elasticsearch", "valkey"}
"""Parameters of contract tests that run on a real server."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByGroup:
    return ByGroup(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """All processes put their tests in the same order, whatever another run writes meanwhile."""
    node.workerinput["seconds"] = node.config.stash[SECONDS].known()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One process more than processors: some tests wait for a server.

    With two more, servers of a slow machine did not answer each other's tests in time.
    """
    return (os.cpu_count() or 1) + 1


def pytest_report_header() -> str:
    return repeats()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SECONDS] = seconds = Seconds(config)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(seconds)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that need servers; of several processes, let those begin first that take longest."""
    for item in items:
        parameters = {str(param) for param in item.callspec.params.values()} if hasattr(item, "callspec") else set()
        if {"stack", "servers", "capturing"} & set(getattr(item, "fixturenames", ())) or parameters & ADAPTERS:
            item.add_marker(pytest.mark.servers)
    if hasattr(config, "workerinput"):
        items[:] = longest_first(items, config.workerinput["seconds"], config.args)


def pytest_collection_finish() -> None:
    """What was imported and collected stays: the garbage collector need not look through it again and again."""
    gc.freeze()


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


@pytest.fixture(autouse=True)
def only_own_logs(request: pytest.FixtureRequest) -> Iterator[None]:
    """What threads of earlier tests log, such as clients of a server that has ended, is not in this test's `caplog`."""
    if "caplog" not in request.fixturenames:
        yield
        return
    handler, earlier = request.getfixturevalue("caplog").handler, set(threading.enumerate())
    earlier.discard(threading.current_thread())

    def is_own(_: logging.LogRecord) -> bool:
        return threading.current_thread() not in earlier

    handler.addFilter(is_own)
    yield
    handler.removeFilter(is_own)


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StackSettings]:
    """The servers that run on the configured ports, or else some of the tests' own on free ports: the local stack, or
    with HEADWATER_TEST_SERVERS=containers those of a container engine.
    """
    running = StackSettings.from_environ(os.environ)
    ports = running.ports
    if all(listens(port) for port in (ports.kafka, ports.postgres, ports.elasticsearch, ports.valkey)):
        yield running
        return
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with shared_servers(folder, chosen_servers({SERVERS: "stack", **os.environ})) as own:
        yield own


@pytest.fixture
def log_settings(stack: StackSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LogSettings]:
    """A fresh deployment with topics of its own, which are deleted afterwards."""
    # what a test appends is no request that somebody waits for: a busy broker may take its time
    monkeypatch.setattr(kafka, "SUBMIT_TIMEOUT_MS", int(BOUND_S * 1000))
    monkeypatch.setattr(kafka, "TIMEOUT_S", BOUND_S)
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
