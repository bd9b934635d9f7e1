"""`headwater person` on real stores: it needs no API, and shows what is sealed with the keys of the person only."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from typing import Any

import pytest
from typer.testing import CliRunner

from headwater.api.known_persons_cli import app
from headwater.commands.declaring.observation import ObservationRegistry
from headwater.commands.sending.recorder import ObservationRecorder
from headwater.compose.settings import StackSettings
from headwater.eventlog.envelope import Envelope, Position, encode, timestamp_ms
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.personal.installed import install, opened_from, uninstall
from headwater.eventlog.settings import LogSettings
from headwater.projections.reading import reader
from headwater.projections.service import Service
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.store import Batch, Target
from headwater.projections.table.expressions import Source
from tests.contracts.opened_stores import RealServer
from tests.contracts.test_key_stores import MASTER
from tests.integration.projections.test_rows_by_persons import TIME, VIEW, service
from tests.support.audited import MemoryTrail

__all__ = ["service"]

HIDDEN = {"hidden": "personal"}
PARTITIONS = 2
"""Of the topics of a test."""


def variables(stack: StackSettings, stores: StoreSettings, modules: str) -> dict[str, str]:
    return {
        **stack.endpoints.environment(),
        "HEADWATER_ENVIRONMENT": stores.environment,
        "HEADWATER_MODULES": modules,
        "HEADWATER_PARTITIONS": str(PARTITIONS),
        "HEADWATER_KEYS": stores.postgres,
        "HEADWATER_MASTER_KEY": MASTER,
    }


def happened(env: dict[str, str], stores: StoreSettings, servers: dict[str, RealServer]) -> None:
    """ADA pays GRACE, more often than there are events on a page."""
    with closing(opened_from(env, stores.environment)) as vault:
        patches = []
        for number in range(1, 151):
            data: dict[str, Any] = {"customer_id": "ADA", "payee_id": "GRACE", "cents": number}
            data["payer_name"] = vault.seal("ADA", "customer.paid", "payer_name", f"Ada {number}")
            data["payee_name"] = vault.seal("GRACE", "customer.paid", "payee_name", "Grace")
            envelope = Envelope(f"customer/ADA/{number}", "customer.paid", "customer/ADA", TIME, data, sequence=number)
            place = Position(0, number), timestamp_ms(TIME)
            patches += list(reader.lift(VIEW, Source(envelope, *place, encode(envelope).decode())))
    servers["postgres"].open().apply([Target(VIEW, 1)], {0: Batch(200, {VIEW.tag: patches})})


def reported(env: dict[str, str], stores: StoreSettings) -> None:
    """ADA visits with GRACE, more often than there are observations on a page, at several doors."""
    install(vault := opened_from(env, stores.environment))
    try:
        registry = ObservationRegistry.load(["tests.support.personal_visits"])
        reports = []
        for number in range(150):
            data: dict[str, Any] = {"visitor_id": "ADA", "room": str(number), "name": "Ada", "age": None}
            data["companions"] = [{"person_id": "GRACE", "phone": "+44"}]
            report = {"id": str(number), "source": f"door{number % 5}", "data": data}
            reports.append(registry.read("visited", json.dumps(report).encode()))
        with closing(KafkaLog(LogSettings.from_environment(env))) as log:
            asyncio.run(ObservationRecorder(log).record(reports))
    finally:
        uninstall(vault)


@pytest.mark.usefixtures("service")
def test_all_pages_are_printed_and_other_persons_are_hidden(
    stack: StackSettings,
    stores: StoreSettings,
    servers: dict[str, RealServer],
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trail = MemoryTrail()
    monkeypatch.setattr("headwater.eventlog.audit.trail.Trail", trail)
    env = variables(stack, stores, "tests.support.personal_customers,tests.support.personal_visits")
    happened(env, stores, servers)
    reported(env, stores)
    service.add_to_stores()
    done = CliRunner().invoke(app, ["ADA"], env=env)
    assert done.exit_code == 0, done.stderr
    known = json.loads(done.stdout)
    found = [(event["data"]["payer_name"], event["data"]["payee_name"]) for event in known["events"]]
    assert sorted(found, key=str) == sorted(((f"Ada {number}", HIDDEN) for number in range(1, 151)), key=str)
    views = {"customers", "last_visitor", "visits_at_once"}
    assert views <= set(known["left_out"]["views"])
    visits = [(event["data"]["name"], event["data"]["companions"][0]["phone"]) for event in known["observations"]]
    assert (visits, known["left_out"]["observations"]) == ([("Ada", HIDDEN)] * 150, [])
    assert len({event["data"]["room"] for event in known["observations"]}) == 150
    (begun, ended) = trail.records
    assert (begun.arguments, ended.outcome) == ({"person": "ADA"}, "done")
    grace = json.loads(CliRunner().invoke(app, ["GRACE"], env=env).stdout)
    assert {event["data"]["payee_name"] for event in grace["events"]} == {"Grace"}
    assert {event["data"]["companions"][0]["phone"] for event in grace["observations"]} == {"+44"}
    nobody = json.loads(CliRunner().invoke(app, ["NOBODY"], env=env).stdout)
    assert (nobody["events"], nobody["observations"]) == ([], [])
    # of a deployment in which only observations have personal fields
    only = CliRunner().invoke(app, ["GRACE"], env=env | {"HEADWATER_MODULES": "tests.support.personal_visits"})
    shown = json.loads(only.stdout)
    assert (len(shown["events"]), len(shown["observations"])) == (150, 150)
