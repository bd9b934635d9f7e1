"""Patches of stream views: read from `patches`, taken by ledgers and guards, and put into rows in any order."""

from __future__ import annotations

import random

import orjson
import pytest

from headwater.projections.loading.decoding import NotAPatch, read_into
from headwater.projections.stores.documents import take_new_patches
from headwater.projections.stores.memory import Memory, MemoryStore
from headwater.projections.stores.store import Batch, Target
from headwater.projections.table.patch import BATCHES, Patch, Place
from tests.support.observed import gate_view

VIEW = gate_view()
TARGET, OLD = Target(VIEW, 2), Target(VIEW, 1)


def patch(batch: int, number: int, tag: str = TARGET.tag, key: str = "a/12:00") -> tuple[bytes, bytes]:
    fields = {"_batch": batch, "gate": "a", "number": number}
    return f"{tag}/{key}".encode(), orjson.dumps({"b": batch, "t": 0, "c": fields})


def test_a_patch_is_read_and_belongs_to_one_generation() -> None:
    batch = Batch(1)
    for key, value in (patch(7, 1), patch(7, 2, OLD.tag)):
        read_into(batch, key, value, {TARGET.tag.encode()})
    assert batch.patches == {
        TARGET.tag: [Patch("a/12:00", BATCHES, Place(7, 0), {"_batch": 7, "gate": "a", "number": 1})]
    }
    for value in (b'{"b": "7", "c": {}}', b'{"b": 7}', b'{"b": 7, "c": []}'):
        with pytest.raises(NotAPatch):
            read_into(batch, b"gates@1.g2/a", value)


def test_rows_are_those_of_the_latest_batch_in_every_order_and_with_repeats() -> None:
    made = [patch(number, number * 10) for number in range(5)]
    for seed in range(20):
        chance = random.Random(seed)
        drawn = [*made, *chance.choices(made, k=4)]
        chance.shuffle(drawn)
        store, at = MemoryStore(Memory()), 0
        store.create(TARGET, {}, {0: 0})
        while drawn:
            batch = Batch(at, first_offset=at)
            for key, value in (drawn.pop() for _ in range(min(len(drawn), 3))):
                read_into(batch, key, value)
            at = batch.next_offset = at + 3
            batch.progress = {TARGET.tag: {"observations/0": at}, OLD.tag: {"observations/0": 1_000}}
            store.apply([TARGET], {0: batch})
        (row,) = store.rows(TARGET).values()
        assert row["number"] == 40
        assert store.ledgers(TARGET)[0].reached("observations/0") == at + 1
        assert BATCHES not in store.ledgers(TARGET)[0].applied


def test_a_guard_skips_earlier_batches_and_takes_the_same_again() -> None:
    def of(batch: int) -> Patch:
        return Patch("a", BATCHES, Place(batch, 0), {"_batch": batch})

    guard = {BATCHES: Place(5, 0)}
    assert take_new_patches(guard, [of(4), of(5), of(6)]) == [of(5), of(6)]
    assert guard == {BATCHES: Place(6, 0)}
