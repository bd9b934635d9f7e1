"""Rows that a store refuses in bulk: the others are written, and these are named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa
import pytest

from headwater.projections.errors import BulkLoadFailed, GenerationMissing, RefusedPatch, StoreUnavailable, Unloadable
from headwater.projections.folding import combining, writing
from headwater.projections.folding.tasks import Written, groups, write
from headwater.projections.generations.rebuild import catching_up
from headwater.projections.generations.rebuild.catching_up import CHUNK_PATCHES, LogPatches, add_rows
from headwater.projections.limits import CHUNK_BYTES
from headwater.projections.reading.compiled import compiled
from headwater.projections.reading.program import Program
from headwater.projections.stores.declared import Postgres
from headwater.projections.stores.memory import Memory, MemoryStore
from headwater.projections.stores.store import Batch, Target
from headwater.projections.table.folds import add, count
from headwater.projections.table.patch import Patch, Place
from headwater.projections.table.view import TableView
from tests.contracts.view_histories import Put
from tests.support.shares import share_of

VIEW = TableView("owners", "thing_id", {"cents": add({Put: "small"}), "puts": count(Put)}, (Postgres(),))
TARGET = Target(VIEW, 1)
MOST = 2**63 - 1


@dataclass
class Refusing:
    """A writer that refuses some keys, after it has written what came before them."""

    keys: Set[str] = frozenset()
    rows: dict[str, Any] = field(default_factory=dict)

    def write(self, batches: Iterator[pa.RecordBatch]) -> int:
        written = 0
        for batch in batches:
            for row in batch.to_pylist():
                if row["thing_id"] in self.keys:
                    raise Unloadable("a store", f"no {row['thing_id']}")
                self.rows[row["thing_id"]] = row["cents"]
                written += 1
        return written


def written(parts: Sequence[dict[str, int]], *writers: Refusing) -> Written:
    """The sums of each part by key, combined and written."""
    program: Program = compiled(VIEW)
    slots = [each.name for each in program.fields]
    rows = [{key: [{"cents": cents}.get(name, 1) for name in slots] for key, cents in part.items()} for part in parts]
    (pieces,) = groups([share_of([row], 1) for row in rows], 0, program, 1)
    return write(program, list(writers), pieces)


@pytest.mark.parametrize("in_runs", [False, True])
def test_a_sum_over_64_bits_is_left_out_only_if_it_is_one_at_the_end(
    in_runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if in_runs:
        monkeypatch.setattr(combining, "ROWS_COMBINED", 1)
    store, far = Refusing(), 2**70
    parts = [{"over": MOST, "back": far, "under": -far}, {"over": 1, "back": 5 - far, "fine": 7}, {"under": -far}]
    assert written(parts, store) == Written(2, (frozenset({"over", "under"}),))
    assert store.rows == {"back": 5, "fine": 7}


def test_every_store_has_the_rows_that_it_does_not_refuse() -> None:
    keys = [f"k{number:03}" for number in range(300)]
    one, other, third = Refusing({"k000", "k123", "k299"}), Refusing(), Refusing({"k124"})
    found = written([dict.fromkeys(keys, 1) | {"over": 2**64}], one, other, third)
    assert found.refused == tuple(frozenset({*each.keys, "over"}) for each in (one, other, third))
    for counted in (one, other, third):
        assert counted.rows.keys() == set(keys) - counted.keys
    assert found.rows == 300


def test_a_store_that_refuses_everything_fails_at_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "MAX_REFUSED", 10)
    keys = {f"k{number:03}" for number in range(300)}
    with pytest.raises(Unloadable, match="no k010"):
        written([dict.fromkeys(sorted(keys), 1)], Refusing(keys))


@dataclass
class Letters:
    """Dead letters that are kept here."""

    keys: list[str] = field(default_factory=list)

    def add(self, key: str, reason: str, what: bytes) -> None:
        assert "64 bits" in reason
        self.keys.append(f"{key} {what.decode()}")


@pytest.fixture
def adding() -> Callable[..., tuple[int, dict[str, int], list[str]]]:
    """Adds rows with these patches; returns how many were refused, the rows, and the dead letters."""

    def add(patches: Sequence[Patch], *, skip: bool = True) -> tuple[int, dict[str, int], list[str]]:
        letters, store = Letters(), MemoryStore(Memory())
        store.create(TARGET, {"0": 10, "1": 10}, {0: 5})
        number = add_rows(store, TARGET, iter(patches), cast("Any", letters), tag=VIEW.tag, skip=skip)
        assert store.ledgers(TARGET)[0].next_offset == 5
        return number, {key: row["cents"] for key, row in store.rows(TARGET).items()}, letters.keys

    return add


def deposits(*cents: int, key: str = "a") -> list[Patch]:
    return [Patch(key, "1", Place(number, 2), {"cents": each, "puts": 1}) for number, each in enumerate(cents)]


def test_refused_rows_get_every_patch_that_their_store_does_not_refuse(
    adding: Callable[..., tuple[int, dict[str, int], list[str]]],
) -> None:
    patches = [*deposits(MOST, 1, -5, 9), *deposits(1, key="b")]
    letters = [f"patches/memory/owners@1/1/{offset}/2 a" for offset in (1, 3)]
    assert adding(patches) == (2, {"a": MOST - 5, "b": 1}, letters)
    with pytest.raises(RefusedPatch, match=r'view "owners": memory refuses record 1:1 in row "a": .*--skip-poison'):
        adding(patches, skip=False)


def test_many_patches_are_each_applied_once(adding: Callable[..., tuple[int, dict[str, int], list[str]]]) -> None:
    number = 2 * CHUNK_PATCHES + 1
    assert adding([*deposits(*[1] * number), *deposits(MOST)])[:2] == (1, {"a": number})
    assert adding(deposits(MOST, 1, -1))[:2] == (1, {"a": MOST - 1}), "as one at a time"


def test_patches_with_long_values_are_applied_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = list[int]()

    class Noting(MemoryStore):
        def apply(self, targets: Sequence[Target], batches: Mapping[int, Batch]) -> None:
            parts.append(len(batches[0].patches[TARGET.tag]))

    monkeypatch.setattr(LogPatches, "settle", lambda *_: None)
    long = [Patch("a", "1", Place(number, 0), {"texts": {"x": ["y" * (CHUNK_BYTES // 4)]}}) for number in range(10)]
    store = Noting(Memory())
    store.create(TARGET, {}, {0: 5})
    add_rows(store, TARGET, long, cast("Any", Letters()), tag=VIEW.tag, skip=True)
    assert parts == [4, 4, 2]


class Crashing(MemoryStore):
    """A store that crashes before some call of `apply`, and returns without its last write.

    noticed: whether the crash interrupts that call; else it was back in between.
    """

    def __init__(self, before: int, *, noticed: bool) -> None:
        super().__init__(Memory())
        self._before, self._noticed, self._calls = before, noticed, 0
        self._earlier: Any = None

    def apply(self, targets: Sequence[Target], batches: Mapping[int, Batch]) -> None:
        self._calls += 1
        if self._calls == self._before and self._noticed:
            self._crash()
            raise StoreUnavailable("memory", "it crashed")
        self._earlier = self._memory.generations[VIEW.name, 1].copy()
        super().apply(targets, batches)
        if self._calls == self._before - 1 and not self._noticed:
            self._crash()

    def _crash(self) -> None:
        self._memory.generations[VIEW.name, 1] = self._earlier


@pytest.mark.parametrize(("before", "noticed"), [(2, True), (2, False), (4, False)])
def test_a_store_that_loses_applied_patches_fails_the_build(
    before: int, noticed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catching_up, "RETRY_S", 0.0)
    store = Crashing(before, noticed=noticed)
    store.create(TARGET, {}, {0: 5})
    patches = deposits(*[1] * (3 * CHUNK_PATCHES))
    with pytest.raises(BulkLoadFailed, match='"owners" failed: memory lost what it had written last'):
        add_rows(store, TARGET, patches, cast("Any", Letters()), tag=VIEW.tag, skip=True)


@pytest.mark.parametrize("after", [1, 2])
def test_a_store_that_loses_patches_while_a_refused_one_is_looked_for_fails_the_build(after: int) -> None:
    class Restored(MemoryStore):
        """A store that loses what it applied in the call with this number; there are two, as one patch is refused."""

        applied = 0

        def apply(self, targets: Sequence[Target], batches: Mapping[int, Batch]) -> None:
            earlier = self._memory.generations[TARGET.id].copy()
            super().apply(targets, batches)
            self.applied += 1
            if self.applied == after:
                self._memory.generations[TARGET.id] = earlier

    store = Restored(Memory())
    store.create(TARGET, {}, {0: 5})
    patches = deposits(1, 1, MOST, 1, 1)  # the store refuses the third
    with pytest.raises(BulkLoadFailed, match='"owners" failed: memory lost what it had written last'):
        add_rows(store, TARGET, patches, cast("Any", Letters()), tag=VIEW.tag, skip=True)


@pytest.mark.parametrize("applied", [False, True])
def test_a_store_that_does_not_answer_for_a_moment_fails_no_build(
    applied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catching_up, "RETRY_S", 0.0)
    left = [StoreUnavailable("memory", "the connection broke")] * 3

    class Away(MemoryStore):
        def apply(self, targets: Sequence[Target], batches: Mapping[int, Batch]) -> None:
            if applied:
                super().apply(targets, batches)
            if left:
                raise left.pop()
            super().apply(targets, batches)

    store = Away(Memory())
    store.create(TARGET, {}, {0: 5})
    number, letters = 2 * CHUNK_PATCHES + 1, cast("Any", Letters())
    assert add_rows(store, TARGET, deposits(*[1] * number), letters, tag=VIEW.tag, skip=True) == 0
    assert store.rows(TARGET)["a"]["cents"] == number
    store.drop(TARGET)
    with pytest.raises(GenerationMissing):
        add_rows(store, TARGET, deposits(1), letters, tag=VIEW.tag, skip=True)
