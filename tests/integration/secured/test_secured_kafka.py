"""A Kafka that is reached encrypted only, and asks every client for a certificate and a password."""

from __future__ import annotations

import uuid
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headwater.eventlog.envelope import Envelope, encode
from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.kafka import admin
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.letters import Letter
from headwater.eventlog.ports import Entry
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import COMMANDS, DEAD_LETTERS, EVENTS, PATCHES, SNAPSHOTS
from headwater.projections.loading.dead_letters import DeadLetters
from headwater.projections.spark.live import read_ranges, start_live
from tests.integration.secured.secured_kafka import Secured
from tests.support.spark_rows import session
from tests.support.table_views import table_views
from tests.support.waiting import eventually

pytestmark = pytest.mark.xdist_group("another Spark session")

BOUND_S = 300.0


def settings_of(secured: Secured, state: Path, **other: str) -> LogSettings:
    """A deployment of its own, whose client may do anything."""
    variables = secured.variables | {
        "HEADWATER_ENVIRONMENT": f"t_{uuid.uuid4().hex[:12]}",
        "HEADWATER_MODULES": "listings",
        "HEADWATER_PARTITIONS": "1",
    }
    return replace(LogSettings.from_environment(variables | other), state=state)


def test_the_log_is_written_and_read(secured: Secured, tmp_path: Path) -> None:
    settings = settings_of(secured, tmp_path)
    admin.prepare(settings)
    with closing(KafkaLog(settings)) as log:
        assert log.submit(Entry(COMMANDS, "counter/c", b"{}", 0), 0).result(240) == 0
        with closing(log.join(lambda _: None)) as member:
            eventually(lambda: member.poll(0.1) == {0}, "the group has its member")
        with closing(log.own(0)) as writer:
            transaction = writer.begin()
            transaction.append([Entry(SNAPSHOTS, "counter/c", b"{}", 0)])
            transaction.commit(1)
        with closing(log.tail(SNAPSHOTS, {0: 0})) as tail:
            eventually(lambda: [record.key for record in tail.poll(10, 0.1)], "the snapshot is read")
        assert log.next_offset(0) == 1
    letters = DeadLetters(settings)
    letters.add("patches/postgres/x", "refused", b"a")
    with closing(KafkaLog(settings)) as log:
        assert [Letter.from_json(record.value or b"").reason for record in log.read(DEAD_LETTERS, 0, 0)] == ["refused"]


@pytest.mark.complete
def test_spark_reads_the_log_and_writes_patches(secured: Secured, tmp_path: Path) -> None:
    settings = settings_of(secured, tmp_path, HEADWATER_PATCH_PARTITIONS="1")
    admin.prepare(settings)
    data = {"listing_id": "L1", "price": 5}
    event = Envelope("listing/L1/2", "listing.price_changed", "listing/L1", datetime.now(UTC), data, sequence=2)
    with closing(KafkaLog(settings)) as log:
        log.submit(Entry(EVENTS, event.id, encode(event), 1), 0).result(240)
        records = read_ranges(session(), settings, {"0": (0, 1)}).collect()
        assert [bytes(row.key) for row in records] == [b"listing/L1/2"]
        views = [table_views()["streams"]]
        query = start_live(session(), views, settings, checkpoint=tmp_path / "checkpoint")
        try:
            eventually(lambda: list(log.read(PATCHES, 0, 0)) or query.exception(), "a patch is written", BOUND_S)
            assert [record.key.partition("@")[0] for record in log.read(PATCHES, 0, 0)] == ["streams"]
        finally:
            query.stop()


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"HEADWATER_KAFKA_PASSWORD": "another"}, "invalid credentials"),
        ({"HEADWATER_KAFKA_CERTIFICATE": "", "HEADWATER_KAFKA_KEY": ""}, "certificate required"),
        ({"HEADWATER_KAFKA_CA": ""}, "certificate (could not be verified|verify failed)"),
    ],
)
def test_who_is_not_let_in_is_told_why(secured: Secured, tmp_path: Path, wrong: dict[str, str], why: str) -> None:
    with pytest.raises(LogUnavailable, match=f"reaching Kafka at {secured.bootstrap} by SASL_SSL.*{why}"):
        admin.prepare(settings_of(secured, tmp_path, **wrong))
