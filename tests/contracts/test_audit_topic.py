"""The audit log on a real broker: a deployment of an earlier release has no such topic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]

from eventlog.audit.record import AuditRecord
from eventlog.audit.trail import Trail, read_trail
from eventlog.kafka import admin
from eventlog.kafka.log import KafkaLog
from eventlog.settings import LogSettings
from eventlog.topics import AUDIT


@pytest.fixture
def settings(log_settings: LogSettings) -> Iterator[LogSettings]:
    """A deployment that has no topics at all."""
    earlier = replace(log_settings, environment=f"{log_settings.environment}_earlier")
    yield earlier
    admin.remove(earlier)


def test_records_are_kept_for_ever_in_order(settings: LogSettings) -> None:
    env = {"HEADWATER_KAFKA": settings.bootstrap, "HEADWATER_ENVIRONMENT": settings.environment}
    trail = Trail(env)
    begun = AuditRecord.begin("replay erase", {"target": "listing/L1"}, settings.environment, env)
    trail.append(begun)
    trail.append(begun.ended("done", 0, ""))
    log = KafkaLog(settings)
    found = list(read_trail(log))
    log.close()
    assert [each and (each.action, each.phase) for each in found] == [(begun.action, "begin"), (begun.action, "end")]
    client = AdminClient({"bootstrap.servers": settings.bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, settings.topic(AUDIT))
    kept = client.describe_configs([resource])[resource].result()
    shown = {name: kept[name].value for name in ("cleanup.policy", "retention.ms", "retention.bytes")}
    assert shown == {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    assert list(client.list_topics(timeout=10).topics[settings.topic(AUDIT)].partitions) == [0]
