"""`headwater person`: all pages of what is known about a person as one document, recorded in the audit log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import orjson
import pytest
from typer.testing import CliRunner

from headwater.api import known_persons_cli
from headwater.api.known_persons_cli import app, everything
from headwater.eventlog.personal.memory import MemoryKeys
from tests.support.audited import MemoryTrail
from tests.unit.api.fake_service import FakeService
from tests.unit.api.test_api_personal import read
from tests.unit.api.test_api_persons import ALL, service

__all__ = ["service"]

DOMAIN = {"HEADWATER_MODULES": "tests.support.personal_customers"}
KEYS = {"HEADWATER_KEYS": "postgresql://nobody@127.0.0.1:1/none", "HEADWATER_MASTER_KEY": "A" * 43 + "="}


@pytest.fixture
def trail(monkeypatch: pytest.MonkeyPatch) -> MemoryTrail:
    made = MemoryTrail()
    monkeypatch.setattr("headwater.eventlog.audit.trail.Trail", made)
    return made


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_all_pages_are_one_document_as_the_api_answers_it(
    service: FakeService, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(known_persons_cli, "EVENTS", at_once)
    printed = orjson.loads(orjson.dumps(asyncio.run(everything(service, "C1"))))
    answer = read(service, "/persons/C1", *ALL).json()
    del answer["links"], answer["searched"]
    assert printed == answer


def test_it_is_recorded_and_says_what_is_wrong(trail: MemoryTrail) -> None:
    done = CliRunner().invoke(app, ["C1"], env=DOMAIN | {"HEADWATER_KEYS": ""})
    assert done.exit_code == 1
    assert "HEADWATER_KEYS" in done.stderr
    begun, ended = trail.records
    assert (begun.verb, begun.arguments, ended.outcome) == ("person", {"person": "C1"}, "failed")
    assert CliRunner().invoke(app, [""], env=DOMAIN | KEYS).exit_code == 2


def test_without_an_audit_log_nothing_is_shown(trail: MemoryTrail) -> None:
    trail.fails.add("begin")
    done = CliRunner().invoke(app, ["C1"], env=DOMAIN | KEYS)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "audit" in done.stderr


def test_a_deployment_without_personal_fields_has_no_persons(trail: MemoryTrail) -> None:
    done = CliRunner().invoke(app, ["C1"], env={"HEADWATER_MODULES": "orders"})
    assert (done.exit_code, trail.records[-1].outcome) == (1, "refused")
    assert "no field is personal" in done.stderr


def test_a_store_that_is_away_is_an_error_in_one_line(
    trail: MemoryTrail, service: FakeService, keys: MemoryKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: Callable[..., FakeService] = lambda _: service  # noqa: E731 - in place of servers
    monkeypatch.setattr(known_persons_cli, "compose_service", made)
    keys.is_away = True
    done = CliRunner().invoke(app, ["C1"], env=DOMAIN | KEYS)
    assert (done.exit_code, len(done.stderr.splitlines()), trail.records[-1].outcome) == (1, 1, "failed")
    keys.is_away = False
    assert CliRunner().invoke(app, ["C1"], env=DOMAIN | KEYS).exit_code == 0
    assert trail.records[-1].outcome == "done"
    assert not any(b"anary" in each for each in trail.stored)
