"""What `headwater status` finds, and that one server that does not answer hides nothing of the others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from headwater.eventlog.capturing import kafka_connect
from headwater.eventlog.heartbeats import heartbeat_key
from headwater.eventlog.letters import Letter
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.personal.identity import KeyHistory
from headwater.eventlog.personal.memory import MemoryKeys
from headwater.eventlog.personal.vault import Vault
from headwater.eventlog.ports import Entry
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.times import now_ms
from headwater.eventlog.topics import DEAD_LETTERS, EVENTS
from headwater.projections.errors import StoreUnavailable
from headwater.projections.generations.upkeep.lag import Lag
from headwater.replay import status
from headwater.replay.status import ATTENTION_EXIT, app

HERE = Lag("listings", "postgres", 1, 3, "caught up", {"0": 2, "1": 2}, 0, 0, 0.0)


class Generations:
    """A registry that answers, or does not."""

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    def prepare(self) -> None:
        if self._error is not None:
            raise self._error

    def all(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(view="listings", source=None), SimpleNamespace(view="old_cards", source=None)]


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A deployment of two partitions with owners, and one view that is up to date."""
    log = MemoryLog(partitions=2)
    for partition in (0, 1):
        log.submit(Entry(EVENTS, heartbeat_key(partition), b"{}", now_ms()), partition).result()
    views = SimpleNamespace(views={"listings": SimpleNamespace(every_s=0.0)})
    settings = LogSettings(partitions=2, modules=("listings",))
    made = SimpleNamespace(
        settings=settings, log=log, views=views, stores=None, generations=Generations(), lags=[HERE], topics=set()
    )

    @contextmanager
    def opened(_: object) -> Iterator[SimpleNamespace]:
        yield made

    monkeypatch.setattr(status, "open_deployment", opened)
    monkeypatch.setattr(status, "existing_topics", lambda _: made.topics)
    looks = SimpleNamespace(look=lambda: made.lags, ends=lambda: {"0": 2, "1": 2})
    monkeypatch.setattr(status, "Lags", lambda *_: looks)
    return made


def run() -> tuple[int, list[dict[str, Any]]]:
    """The exit code, and the parts with a problem."""
    done = CliRunner().invoke(app, ["--json"])
    answer = json.loads(done.stdout)
    wrong = [line for line in answer["parts"] if line["problem"]]
    assert answer["healthy"] is (not wrong)
    return done.exit_code, wrong


def test_a_deployment_that_works_needs_nothing(deployment: SimpleNamespace) -> None:
    assert run() == (0, [])
    shown = CliRunner().invoke(app)
    assert shown.exit_code == 0
    assert "view\tlistings in postgres\tcaught up" in shown.stdout
    assert "partition\t1\towned" in shown.stdout


def test_a_restored_store_of_keys_that_has_destroyed_keys_again_needs_attention(
    deployment: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = MemoryKeys()
    key, other = keys.key_of("P1"), keys.key_of("P2")
    history = [KeyHistory((), frozenset({key.key_id})), KeyHistory((key.key_id[:8],), frozenset({key.key_id}))]
    monkeypatch.setenv("HEADWATER_KEYS", "postgresql://keys@nowhere/keys")
    monkeypatch.setattr(status, "LoggedKeys", lambda _: SimpleNamespace(read=lambda: history[-1]))
    monkeypatch.setattr(status, "opened_from", lambda *_: Vault(keys))
    code, (part,) = run()
    assert (code, part["what"]) == (ATTENTION_EXIT, "keys")
    assert "erased persons are readable again (1): run headwater erase --restored" in part["problem"]
    keys.erase("P1")
    assert run() == (0, [])
    assert keys.find([other.key_id])
    # a look notes no store, so without a note it does not open any
    history.pop()
    assert run() == (0, [])


def test_what_is_there_and_not_declared_is_listed(deployment: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment.topics = {"headwater.events", "headwater.cdc.crm.public.people", "headwater.cdc.shop.public.orders"}
    states: dict[str, object] = {"headwater.cdc.crm": None}
    monkeypatch.setattr(kafka_connect.KafkaConnect, "state", lambda _, name: states.get(name))
    shown = CliRunner().invoke(app).stdout
    for line in ("view\told_cards\tnot declared", "source\tcrm\tnot declared", "source\tshop\tnot declared"):
        assert line in shown
    assert run() == (0, [])
    states["headwater.cdc.shop"] = "RUNNING"
    code, (part,) = run()
    assert (code, part["name"]) == (ATTENTION_EXIT, "shop")
    assert "run headwater sources remove shop with the module that declared it" in part["problem"]


def test_a_partition_without_an_owner_is_named_though_its_views_have_all(deployment: SimpleNamespace) -> None:
    deployment.log = MemoryLog(partitions=2)
    old_ms = now_ms() - 60_000
    deployment.log.submit(Entry(EVENTS, heartbeat_key(1), b"{}", old_ms), 1).result()
    code, wrong = run()
    assert code == ATTENTION_EXIT
    assert [entry["name"] for entry in wrong] == ["0", "1"]
    assert "never had a record" in wrong[0]["problem"] and "for 60 s" in wrong[1]["problem"]
    assert all("`headwater handler`" in line["problem"] for line in wrong)


def test_a_view_that_is_not_built_and_dead_letters_are_named_with_what_helps(deployment: SimpleNamespace) -> None:
    deployment.lags = [Lag("listings", "postgres", 1, None, "not built", {}, problem="rebuild it")]
    letter = Letter("no JSON", "2026-01-01T00:00:00Z", b"k", b"v").to_json(topic=EVENTS, partition=0, offset=7)
    for key, value in ((f"{EVENTS}/0/7", letter), (f"{EVENTS}/0/8", letter), (f"{EVENTS}/0/8", None)):
        deployment.log.submit(Entry(DEAD_LETTERS, key, value, 1), 0).result()
    code, wrong = run()
    assert code == ATTENTION_EXIT
    assert [(part["what"], part["name"], part["state"]) for part in wrong] == [
        ("view", "listings in postgres", "not built"),
        ("letters", EVENTS, "1"),
    ]
    assert wrong[0]["problem"] == "rebuild it"
    assert "replay dead-letters list" in wrong[1]["problem"]


def test_a_server_that_does_not_answer_is_a_problem_and_the_rest_is_shown(deployment: SimpleNamespace) -> None:
    deployment.generations = Generations(StoreUnavailable("postgres", "no answer"))
    done = CliRunner().invoke(app)
    assert done.exit_code == ATTENTION_EXIT
    assert "partition\t0\towned" in done.stdout
    assert "views all: " in done.stdout and "no answer" in done.stdout
