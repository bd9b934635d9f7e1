"""The audit log on a real broker: a deployment that was never prepared has no such topic."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]

from headwater.eventlog.audit.trail import AuditRecord, Trail, Trails, read_trail
from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.kafka import admin
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import AUDIT


@pytest.fixture
def settings(log_settings: LogSettings) -> Iterator[LogSettings]:
    """A deployment that has no topics at all."""
    earlier = replace(log_settings, environment=f"{log_settings.environment}_earlier")
    yield earlier
    admin.remove(earlier)


def test_threads_share_trails_and_one_that_failed_is_not_used_again(
    settings: LogSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {"HEADWATER_KAFKA": settings.bootstrap, "HEADWATER_ENVIRONMENT": settings.environment}
    opened = list[Trail]()

    def open_trail() -> Trail:
        opened.append(Trail(env))
        return opened[-1]

    trails = Trails(open_trail)
    records = [AuditRecord.begin("person", {"person": str(number)}, settings.environment, env) for number in range(40)]
    for record in records[:10]:
        trails.append(record)
    assert len(opened) == 1
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(trails.append, records[10:]))
    assert len(opened) <= 3
    with monkeypatch.context() as away:
        away.setattr(Trail, "append", unavailable)
        with pytest.raises(LogUnavailable):
            trails.append(records[0])
    assert len(trails._idle) == len(opened) - 1
    log = KafkaLog(settings)
    found = {each.action for each in read_trail(log) if each is not None}
    log.close()
    assert found == {record.action for record in records}


def unavailable(*_: object) -> None:
    raise LogUnavailable("recording an action", "no answer")


def test_records_are_kept_for_ever_in_order(settings: LogSettings) -> None:
    env = {"HEADWATER_KAFKA": settings.bootstrap, "HEADWATER_ENVIRONMENT": settings.environment}
    trail = Trail(env)
    begun = AuditRecord.begin("replay erase", {"target": "listing/L1"}, settings.environment, env)
    trail.append(begun)
    trail.append(begun.ended("done", 0, ""))
    log = KafkaLog(settings)
    found = list(read_trail(log))
    log.close()
    assert [action and (action.action, action.phase) for action in found] == [
        (begun.action, "begin"),
        (begun.action, "end"),
    ]
    client = AdminClient({"bootstrap.servers": settings.bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, settings.topic(AUDIT))
    kept = client.describe_configs([resource])[resource].result()
    shown = {name: kept[name].value for name in ("cleanup.policy", "retention.ms", "retention.bytes")}
    assert shown == {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    assert list(client.list_topics(timeout=60).topics[settings.topic(AUDIT)].partitions) == [0]
