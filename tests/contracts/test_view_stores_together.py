"""All views of a store at once: emitters that run twice, loaders that crash, a generation that comes later."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import orjson
import pytest

from headwater.commands.declaring.aggregate import Event
from headwater.eventlog.source_positions import source_id
from headwater.projections.errors import LedgerWentBack
from headwater.projections.kinds import table_view
from headwater.projections.loading.decoding import read_into
from headwater.projections.reading.reader import fold, lift
from headwater.projections.stores.elasticsearch import ledgers as elasticsearch_ledgers
from headwater.projections.stores.names import patch_key, patch_partition
from headwater.projections.stores.store import Batch, Target, ViewStore
from headwater.projections.table.expressions import Source
from headwater.projections.table.view import TableView
from headwater.projections.testing.contracts import PARTITIONS, history
from tests.contracts.fold_views import BY_SKU, FOLD_VIEWS
from tests.contracts.opened_stores import OnMemory, Server
from tests.contracts.test_view_stores import START, VIEWS, Crash, created, server, store_name
from tests.contracts.view_histories import BY_GROUP
from tests.support.seeds import examples, seed_of

__all__ = ["server", "store_name"]  # fixtures

Records = dict[int, list[tuple[bytes, bytes]]]


def test_ledgers_of_many_generations_are_those_of_each(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elasticsearch_ledgers, "INDEXES_AT_ONCE", 2)  # so that it asks several times
    complete = [created(server, view, {"0": at}) for at, view in enumerate([BY_GROUP, BY_SKU, VIEWS["by_thing"]], 1)]
    second = created(server, BY_GROUP, {"0": 9}, generation=2)
    store, incomplete, absent = server.open(), Target(BY_SKU, 2), Target(BY_SKU, 3)
    assert store.all_ledgers([absent, *complete]) == [{}, *map(server.open().ledgers, complete)]
    store.create(incomplete, {"0": 5}, START)
    store.drop(complete[1])
    found = store.all_ledgers([second, absent, *complete, incomplete])
    positions = [{ledger.reached("0") for ledger in each.values()} for each in found]
    if isinstance(server, OnMemory):  # it has no bulk that could be incomplete
        positions[-1] = set()
    assert positions == [{9}, set(), {1}, set(), {3}, set()]
    assert store.all_ledgers([]) == []


@dataclass
class Emitters:
    """The live queries that read one partition of a topic, and how far each is; all started with what had been read."""

    sources: list[Source]
    at: list[int]

    def restart(self, chance: random.Random) -> None:
        """One starts again from before what was emitted, in the place of another or beside it."""
        start = chance.randint(0, max(self.at))
        if chance.random() < 0.5:
            self.at.append(start)
        else:
            self.at[chance.randrange(len(self.at))] = start


def emitted(views: Sequence[TableView], sources: Sequence[Source], chance: random.Random) -> Records:
    """`patches` as these emitters write it: what comes first is in order, and comes again, whole runs at a time."""
    records: Records = {partition: [] for partition in range(PARTITIONS)}
    logs: dict[str, list[Source]] = {}
    for source in sources:
        logs.setdefault(source_id(source.topic, source.position.partition), []).append(source)
    running = {name: Emitters(log, [0]) for name, log in logs.items()}
    tags = [view.tag for view in views]
    while running:
        name, emitters = chance.choice(list(running.items()))
        which = chance.randrange(len(emitters.at))
        run = emitters.sources[emitters.at[which] : emitters.at[which] + chance.randint(1, 8)]
        emitters.at[which] += len(run)
        for source in run:
            _emit(records, views, source)
        finished = max(emitters.at) == len(emitters.sources)
        if run and (finished or chance.random() < 0.2):
            value = orjson.dumps({"p": name, "o": run[-1].position.offset, "t": 0, "v": tags})
            for record in records.values():
                record.append((f"progress/{name}".encode(), value))
        if chance.random() < 0.15:
            emitters.restart(chance)
        elif finished and chance.random() < 0.5:
            del running[name]
    return records


def _emit(records: Records, views: Iterable[TableView], source: Source) -> None:
    for view in views:
        for patch in lift(view, source):
            key, (offset, number) = patch_key(view.tag, patch.key), patch.place
            value = {"p": patch.source, "o": offset, "i": number, "t": source.timestamp_ms, "c": patch.fields}
            partition = patch_partition(view, view.tag, patch.key, PARTITIONS)
            records[partition].append((key.encode(), orjson.dumps(value)))


def load_with_crashes(server: Server, targets: Sequence[Target], records: Records, chance: random.Random) -> int:
    """Load to the end, crash after crash, each life from the ledgers on; returns how many crashes there were."""

    # a store may have a moment per target in one transaction: at a fixed chance, many views would never get through
    likelihood = 1 / len(targets)

    def fault(moment: str) -> None:
        if chance.random() < likelihood:
            raise Crash(moment)

    crashes = 0
    while True:
        store = server.open(fault)
        try:
            _live(store, targets, records, chance)
        except Crash:
            store.close()  # as the kernel closes the connections of a process that died
            crashes += 1
        else:
            return crashes


def _live(store: ViewStore, targets: Sequence[Target], records: Records, chance: random.Random) -> None:
    at = _positions(store, targets)
    while behind := [partition for partition in at if at[partition] < len(records[partition])]:
        batches = {}
        for partition in chance.sample(behind, chance.randint(1, len(behind))):
            batch = batches[partition] = Batch(at[partition], first_offset=at[partition])
            for key, value in records[partition][batch.first_offset : batch.first_offset + chance.randint(1, 60)]:
                read_into(batch, key, value)
                batch.next_offset += 1
        try:
            store.apply(targets, batches)
        except LedgerWentBack:  # written less often than the rows: only a ledger that is ahead would be wrong
            at = _positions(store, targets)
            continue
        at |= {partition: batch.next_offset for partition, batch in batches.items()}
        if chance.random() < 0.1:  # partitions are assigned anew
            stored = _positions(store, targets)
            assert all(stored[partition] <= at[partition] for partition in at), "the ledger is ahead of the rows"
            at = stored


def _positions(store: ViewStore, targets: Sequence[Target]) -> dict[int, int]:
    ledgers = [store.ledgers(target) for target in targets]
    return {partition: min(ledger[partition].next_offset for ledger in ledgers) for partition in START}


@pytest.mark.soak
@pytest.mark.parametrize("number", range(examples(1)))
def test_all_views_together_and_a_generation_that_comes_later(server: Server, store_name: str, number: int) -> None:
    """The loader goes back for the new generation, and the old one skips what it has."""
    views = [view for view in VIEWS.values() if store_name == "memory" or view.store(store_name)]
    views = [view for view in views if view.name not in FOLD_VIEWS or view is BY_SKU]  # the others are large
    events: dict[str, type[Event]] = {name: event for view in views for name, event in view.plan.events.items()}
    sources = history(BY_GROUP, list(events.values()), seed_of(number), length=200).sources
    chance = random.Random(seed_of(number))
    records = emitted(views, sources, chance)
    targets = [created(server, view) for view in views]
    crashes = load_with_crashes(server, targets, records, chance)
    targets += [created(server, view, generation=2) for view in views]
    crashes += load_with_crashes(server, targets, records, chance)
    assert crashes > 3, "hardly anything crashed: the test tests nothing"
    store = server.open()
    for target in targets:
        store.publish(target)
        assert server.rows(target.view) == fold(table_view(target.view), sources), target
