"""A command of `headwater sources` that is killed while its connector is stopped, and one that meets another."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from headwater.compose.samples.shop_database import fill
from headwater.compose.stack import Stack
from headwater.eventlog.capturing import operated, watching
from headwater.eventlog.capturing.errors import SourceProblem
from headwater.eventlog.capturing.kafka_connect import ConnectorState, KafkaConnect
from headwater.eventlog.capturing.naming import SourceNames
from headwater.eventlog.capturing.operating import LEFT, Operator
from headwater.eventlog.capturing.settings import SourceSettings
from headwater.eventlog.capturing.watching import Watcher
from headwater.samples.shop.source import Customer, shop
from tests.integration.sources.held_proxy import HeldRequests
from tests.integration.sources.test_source_commands import Deployment, deployed
from tests.support.waiting import eventually

pytestmark = [pytest.mark.complete, pytest.mark.xdist_group("another Kafka Connect")]

STOPPED = ConnectorState("STOPPED", "")


@pytest.fixture(scope="module")
def deployment(capturing: Stack) -> Iterator[Deployment]:
    with deployed(capturing) as made:
        with psycopg.connect(made.owner) as connection:
            fill(connection, 1, customers=20, products=5)
        made.works("apply")
        eventually(lambda: made.status()["healthy"], "it captures")
        yield made


@pytest.fixture
def operator(deployment: Deployment) -> Iterator[Operator]:
    settings = SourceSettings.from_environment(shop, deployment.variables)
    with Operator(shop, settings, KafkaConnect(settings.connect), lambda _: None) as made:
        yield made


def kill_while_stopped(deployment: Deployment, *words: str, before: str = "PUT {}/resume") -> None:
    """Run a command, and kill it after it has stopped its connector. before: this request, which never arrives."""
    name = SourceNames.of(shop, deployment.environment).connector
    requests = [each.format(f"/connectors/{name}") for each in ("PUT {}/stop", before)]
    with (
        closing(HeldRequests("127.0.0.1", deployment.stack.settings.ports.connect, *requests)) as proxy,
        closing(KafkaConnect(deployment.stack.endpoints.connect)) as connect,
    ):
        variables = {**deployment.variables, "HEADWATER_CONNECT": f"http://127.0.0.1:{proxy.port}"}
        command = subprocess.Popen(
            [sys.executable, "-m", "headwater.eventlog.capturing", *words], env=os.environ | variables
        )
        try:
            eventually(lambda: proxy.is_holding or command.poll() is not None, f"{words} stops the connector")
            assert proxy.is_holding, f"{words} has ended"
        finally:
            command.kill()
            command.wait()
        eventually(lambda: connect.state(name) == STOPPED, "it is stopped")
    wait_free(deployment)


def wait_free(deployment: Deployment) -> None:
    """Return once no command works with the connector: the server notices the end of its connection in its time."""
    held = """SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
              WHERE locktype = 'advisory' AND datname = current_database()"""
    eventually(lambda: not deployment.sql(held), "the lock of the source is free")


def captures(deployment: Deployment, name: str) -> bool:
    """Whether a change comes through."""
    deployment.sql(f"UPDATE customers SET name = '{name}' WHERE id = 3")
    topic = deployment.topic(Customer)
    eventually(lambda: topic.read() and topic.rows["3"]["name"] == name, "the change is captured")
    return bool(deployment.status()["state"] == "RUNNING")


@pytest.mark.parametrize(
    ("words", "before"),
    [
        (("sweep",), "GET {}/status"),
        (("restart",), "PUT {}/resume"),
        (("snapshot", "public.customers"), "GET {}/status"),
        (("snapshot", "public.customers"), "PUT {}/resume"),
    ],
)
def test_the_watch_lets_a_connector_run_that_a_killed_command_has_left_stopped(
    deployment: Deployment,
    operator: Operator,
    words: tuple[str, ...],
    before: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(watching, "LOST_S", 0.0)
    kill_while_stopped(deployment, *words, before=before)
    assert any("was stopped by a command" in each for each in deployment.status()["problems"])
    with caplog.at_level(logging.WARNING):
        Watcher([operator]).look()
    eventually(lambda: deployment.status()["state"] == "RUNNING", "it goes on")
    assert "its connector was left stopped, and goes on" in caplog.text
    assert captures(deployment, f"after {words[0]}")
    eventually(lambda: deployment.status()["healthy"], "nothing is left to be done")


def test_apply_lets_it_run_too(deployment: Deployment) -> None:
    kill_while_stopped(deployment, "sweep")
    assert LEFT in deployment.works("apply", "--dry-run")
    assert deployment.status()["state"] == "STOPPED"
    assert deployment.works("apply").splitlines() == [LEFT, "shop: applied"]
    assert captures(deployment, "after apply")
    assert deployment.works("apply") == "shop: as declared\n"


def test_nobody_lets_a_connector_run_while_a_command_works_with_it(
    deployment: Deployment, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a row that is written meanwhile could be deleted from its topic."""
    monkeypatch.setattr(watching, "LOST_S", 0.0)
    other = Operator(shop, operator.settings, operator.connect, lambda _: None)
    with operator.holding():
        monkeypatch.setattr(operated, "HOLD_S", 0.5)
        operator.stop()
        for words in (["resume"], ["restart"], ["snapshot", "public.customers"]):
            assert "another command works with its connector" in deployment.fails(*words)
        Watcher([other]).look()
        assert deployment.works("apply") == "shop: as declared\n"
        assert deployment.status()["state"] == "STOPPED"
        operator.check_held()
        deployment.sql("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'", "shop_capture")
        with pytest.raises(SourceProblem, match="held its connector stopped was lost"):
            operator.check_held()
    wait_free(deployment)
    Watcher([other]).look()
    eventually(lambda: deployment.status()["state"] == "RUNNING", "it goes on once nobody holds it")
    assert captures(deployment, "after all")
