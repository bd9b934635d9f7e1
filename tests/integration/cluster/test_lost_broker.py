"""Three brokers, of which one is lost: what was acknowledged is there, and work goes on."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from headwater.eventlog.kafka import admin
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.settings import LogSettings
from headwater.projections.table.expressions import Source
from headwater.projections.testing.contracts import history
from tests.contracts.view_histories import some_folds
from tests.integration.cluster.machines import BOUND_S, append_once, machines, read_again
from tests.support.logged import append, logged
from tests.support.waiting import Latest, eventually

pytestmark = pytest.mark.jvm

VIEW = some_folds("far_apart", "group")


def test_acknowledged_records_survive_a_broker_and_work_goes_on(tmp_path: Path) -> None:
    with machines(tmp_path / "machines", workers=0) as brokers:
        settings = LogSettings("far_apart", brokers.bootstrap, partitions=2, replication=3, state=tmp_path / "state")
        admin.prepare(settings)
        made = history(VIEW, list(VIEW.plan.events.values()), 5, length=200).sources
        sources = [each for each in made if each.position.partition < settings.partitions]
        acknowledged, later = sources[:50], sources[50:]
        with closing(KafkaLog(settings)) as log:
            append(log, acknowledged)
            brokers.kill("kafka-2")
            become(log, acknowledged)
            append_once(log, later)
            become(log, sources)


def become(log: KafkaLog, sources: Sequence[Source]) -> None:
    """Wait until these events are in the log, each once: a new leader shows what it has once others confirm it."""
    expected = sorted(source.envelope.id for source in sources)

    def found() -> list[str]:
        return sorted(source.envelope.id for source in read_again(partial(logged, log)))

    eventually(lambda: found() == expected, Latest(lambda: f"{found()} instead of {expected}"), BOUND_S)
