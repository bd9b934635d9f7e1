"""A generation that nobody loads is brought up to the end of the log, whatever single patches are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, cast

import pytest

from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Entry
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import EVENTS
from headwater.projections.errors import LedgerWentBack, StoreUnavailable
from headwater.projections.generations.rebuild.catching_up import chunks, top_up
from headwater.projections.stores.declared import Postgres
from headwater.projections.stores.memory import Memory, MemoryStore
from headwater.projections.stores.store import Batch, Target
from headwater.projections.table.folds import count
from headwater.projections.table.patch import Patch, Place
from headwater.projections.table.view import TableView
from tests.contracts.view_histories import Put
from tests.unit.projections.kept_letters import KeptLetters

VIEW = TableView("puts", "thing_id", {"puts": count(Put)}, (Postgres(),))
TARGET = Target(VIEW, 1)
SETTINGS = LogSettings(partitions=1, patch_partitions=1)


class Made:
    """An engine that made these patches."""

    def patches(self, *_: object) -> Iterator[tuple[str, str, int]]:
        yield "puts@1/a", '{"p":0,"o":0,"i":0,"c":{"puts":1}}', 0
        yield "puts@1/b/c", '{"too_large":5000000}', 0
        yield "puts@1/d", '{"p":0,"o":0,"i":2,"c":{"puts":1}}', 0


@pytest.mark.parametrize(("limit", "value"), [("CHUNK_PATCHES", 2), ("CHUNK_BYTES", 20)])
def test_patches_are_applied_before_they_fill_memory(monkeypatch: pytest.MonkeyPatch, limit: str, value: int) -> None:
    monkeypatch.setattr(f"headwater.projections.generations.rebuild.catching_up.{limit}", value)
    made = [(0, Patch(str(number), "0", Place(number, 0), {"puts": 1})) for number in range(5)]
    assert [len(chunk) for chunk in chunks(made)] == [2, 2, 1]


def test_a_patch_that_cannot_be_read_is_a_dead_letter_and_the_others_are_applied() -> None:
    letters, log, store = KeptLetters(), MemoryLog(partitions=1), MemoryStore(Memory())
    log.submit(Entry(EVENTS, "thing/1", b"{}", 1), 0).result()
    store.create(TARGET, {}, {0: 0})
    assert top_up(TARGET, [store], cast("Any", letters), cast("Any", Made()), log, SETTINGS) == 2
    assert store.rows(TARGET).keys() == {"a", "d"}
    ((key, reason, what),) = letters.kept
    assert (key, what) == ("patches/replay/puts@1/b/c", b"puts@1/b/c")
    assert "5000000 bytes" in reason
    assert store.ledgers(TARGET)[0].reached("0") == 1


@pytest.mark.parametrize("after", [1, 3])
def test_a_store_that_comes_back_older_meanwhile_is_noticed(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    monkeypatch.setattr("headwater.projections.generations.rebuild.catching_up.CHUNK_PATCHES", 1)
    letters, log, memory = KeptLetters(), MemoryLog(partitions=1), Memory()
    store = MemoryStore(memory)
    for _ in range(4):
        log.submit(Entry(EVENTS, "thing/1", b"{}", 1), 0).result()
    store.create(TARGET, {}, {0: 0})

    class Restored:
        def patches(self, *_: object) -> Iterator[tuple[str, str, int]]:
            for number in range(4):
                if number == after:
                    older = deepcopy(memory.__dict__)
                yield f"puts@1/{number}", f'{{"p":0,"o":{number},"i":0,"c":{{"puts":1}}}}', 0
                if number == after:  # it has just been applied
                    memory.__dict__.update(older)

    with pytest.raises(LedgerWentBack, match=r'source "0".*the last writes were lost; start it again'):
        top_up(TARGET, [store], cast("Any", letters), cast("Any", Restored()), log, SETTINGS)
    assert top_up(TARGET, [store], cast("Any", letters), cast("Any", Again()), log, SETTINGS) == 4
    assert store.rows(TARGET).keys() == {"0", "1", "2", "3"}


class Again:
    """An engine that makes all patches."""

    def patches(self, *_: object) -> Iterator[tuple[str, str, int]]:
        for number in range(4):
            yield f"puts@1/{number}", f'{{"p":0,"o":{number},"i":0,"c":{{"puts":1}}}}', 0


def test_a_store_that_does_not_answer_for_a_moment_gets_each_patch_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.projections.generations.rebuild.catching_up.RETRY_S", 0.0)
    left = [StoreUnavailable("memory", "the connection broke")] * 2

    class Away(MemoryStore):
        def apply(self, targets: Sequence[Target], batches: Mapping[int, Batch]) -> None:
            super().apply(targets, batches)
            if left:
                raise left.pop()

    log, store = MemoryLog(partitions=1), Away(Memory())
    for _ in range(4):
        log.submit(Entry(EVENTS, "thing/1", b"{}", 1), 0).result()
    store.create(TARGET, {}, {0: 0})
    assert top_up(TARGET, [store], cast("Any", KeptLetters()), cast("Any", Again()), log, SETTINGS) == 4
    assert {key: row["puts"] for key, row in store.rows(TARGET).items()} == dict.fromkeys("0123", 1)
