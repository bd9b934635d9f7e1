"""Histories sent to `patches`, and what every store is to show of them in the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
from confluent_kafka import Producer

from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import PATCHES
from headwater.projections.reading.reader import fold
from headwater.projections.stores.names import patch_key
from headwater.projections.stores.store import Target
from headwater.projections.testing.contracts import History
from tests.contracts.opened_stores import Server
from tests.support.ordered_producer import stored
from tests.support.states import differences
from tests.support.waiting import Latest, eventually


def send(producer: Producer, settings: LogSettings, told: History) -> None:
    for partition, emissions in told.patches.items():
        for emission in emissions:
            if emission.patch is None:
                source, offset = emission.progress or ("0", 0)
                key, value = f"progress/{source}", {"p": int(source), "o": offset, "t": 1, "v": [emission.tag]}
            else:
                key, patch = patch_key(emission.tag, emission.patch.key), emission.patch
                offset, number = patch.place
                value = {"p": int(patch.source), "o": offset, "i": number, "t": 1, "c": patch.fields}
            producer.produce(settings.topic(PATCHES), orjson.dumps(value), key, partition)
    stored(producer)


def create(server: Server, view: Any, start: Sequence[int] = (0,) * LogSettings.patch_partitions) -> Target:
    target, store = Target(view, 1), server.open()
    store.create(target, {}, dict(enumerate(start)))
    store.finish(target)
    store.publish(target)
    return target


def rows_become(server: Server, told: History) -> None:
    """Wait until a reader finds what the reference folds; the error says which rows differ, and what is applied."""
    __tracebackhide__ = True
    expected = fold(told.view, told.sources)

    def missing() -> str:
        places = "\n".join(differences(server.rows(told.view), expected)) or "the rows came just too late"
        ledgers = server.open().ledgers(Target(told.view, 1)).items()
        applied = {partition: ledger.next_offset for partition, ledger in sorted(ledgers)}
        sent = {partition: len(patch) for partition, patch in sorted(told.patches.items())}
        return f"{told.view.name}\n{places}\npatches applied up to {applied}; this history has {sent}"

    eventually(lambda: server.rows(told.view) == expected, Latest(missing))
