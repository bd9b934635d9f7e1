"""Histories sent to `patches`, and what every store is to show of them in the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from confluent_kafka import Producer

from eventlog.settings import LogSettings
from eventlog.topics import PATCHES
from projections.stores.names import patch_key
from projections.stores.store import Target
from projections.table.reference import fold
from projections.testing.histories import History
from tests.contracts.opened_stores import Server
from tests.support.waiting import BOUND_S, eventually


def send(producer: Producer, settings: LogSettings, told: History) -> None:
    for partition, emissions in told.patches.items():
        for each in emissions:
            if each.patch is None:
                source, offset = each.progress or ("0", 0)
                key, value = f"progress/{source}", {"p": int(source), "o": offset, "t": 1, "v": [each.tag]}
            else:
                key, patch = patch_key(each.tag, each.patch.key), each.patch
                offset, number = patch.place
                value = {"p": int(patch.source), "o": offset, "i": number, "t": 1, "c": patch.fields}
            producer.produce(settings.topic(PATCHES), orjson.dumps(value), key, partition)
    assert producer.flush(BOUND_S) == 0


def create(server: Server, view: Any, start: Sequence[int] = (0,) * LogSettings.patch_partitions) -> Target:
    target, store = Target(view, 1), server.open()
    store.create(target, {}, dict(enumerate(start)))
    store.finish(target)
    store.publish(target)
    return target


def rows_become(server: Server, told: History) -> None:
    expected = fold(told.view, told.sources)
    try:
        # a client of Kafka that has forgotten its brokers is replaced after half a minute
        eventually(lambda: server.rows(told.view) == expected, timeout_s=240.0)
    except AssertionError as late:
        found = server.rows(told.view)
        differing = {key: (row, found.get(key)) for key, row in expected.items() if found.get(key) != row}
        assert found == expected, f"{len(found)} rows; expected and found: {differing}"
        raise AssertionError("the rows came just too late") from late
