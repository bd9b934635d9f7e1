"""One row folded again from a log in memory, in stores that change and lag while it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headwater.api.changes.patch_tail import Touch, patches_of, touches
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Entry
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import EVENTS, PATCHES
from headwater.projections.generations.rebuild import single_rows
from headwater.projections.generations.rebuild.engine import Load
from headwater.projections.generations.rebuild.single_rows import RowFolder
from headwater.projections.loading.decoding import read_into
from headwater.projections.stores.backend import StoredRow
from headwater.projections.stores.declared import Cache, Postgres
from headwater.projections.stores.ledgers import initial_ledger, take_new
from headwater.projections.stores.store import Batch, Target
from headwater.projections.table.folds import add
from headwater.projections.table.monoids import State
from headwater.projections.table.patch import Patch, Place
from headwater.projections.table.view import TableView
from headwater.projections.view import View
from tests.contracts.view_histories import Put

TOTALS = TableView("totals", "thing_id", {"total": add({Put: "small"})}, (Cache(),))


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PAUSE_S", "FOLLOW_S", "LOOK_S"):
        monkeypatch.setattr(single_rows, name, 0.0)
    monkeypatch.setattr(single_rows, "TURNS", 3)


def patch(offset: int, total: int) -> Patch:
    return Patch("a", "0", Place(offset, 0), {"total": total})


def row(total: int | None, offset: int) -> StoredRow:
    return StoredRow(None if total is None else {"total": total}, {"0": Place(offset, 0)})


@dataclass
class Engine:
    """Gives the patches of a log that are left. reads: the ranges that were read."""

    log: list[Patch]
    reads: list[Any] = field(default_factory=list)

    def row_patches(self, load: Load[View], keys: object, streams: object = None) -> Iterator[Patch]:
        self.reads.append(dict(load.ranges))
        start, end = load.ranges["0"]
        return iter([each for each in self.log if start <= each.place.offset < end])


@dataclass
class Store:
    """Gives these rows one after the other, the last one again and again."""

    rows: list[StoredRow]
    refuses: int = 0
    written: list[State | None] = field(default_factory=list)
    on_read: Callable[[], None] = lambda: None

    def read(self, target: Target, key: str) -> StoredRow:
        self.on_read()
        return self.rows.pop(0) if len(self.rows) > 1 else self.rows[0]

    def as_read(self, state: State) -> State:
        return dict(state)

    def replace(self, target: Target, key: str, before: StoredRow, state: State | None) -> bool:
        if self.refuses:
            self.refuses -= 1
            return False
        self.written.append(state)
        return True


def log_with(records: int) -> MemoryLog:
    log = MemoryLog(partitions=1)
    for number in range(records):
        append(log, f"thing/a/{number + 1}", b"{}")
    return log


def append(log: MemoryLog, key: str, value: bytes | None) -> None:
    log.submit(Entry(EVENTS, key, value, 0), 0).result()


def folder(log: MemoryLog, engine: Any, store: Any, **more: Any) -> RowFolder:
    settings = LogSettings(partitions=1, patch_partitions=1)
    return RowFolder(Target(TOTALS, 1), settings, log, engine, {"memory": store}, **more)


def test_patches_that_a_store_does_not_have_yet_do_not_count() -> None:
    engine = Engine([patch(0, 1), patch(1, 2), patch(2, 4)])
    (found,) = folder(log_with(3), engine, Store([row(3, 1)])).fold(["a"], None)
    assert (found.outcome, found.folded) == ("equal", {"total": 3})


def test_a_row_that_changes_before_it_is_written_is_folded_on_from_where_it_was() -> None:
    engine, store = Engine([patch(0, 1), patch(1, 2), patch(2, 4)]), Store([row(9, 0), row(11, 1), row(15, 2)], 2)
    (found,) = folder(log_with(3), engine, store).fold(["a"], None, write=True)
    assert (found.outcome, found.differing) == ("replaced", ({"total": 15}, {"total": 7}))
    assert store.written == [{"total": 7}]
    assert [each["0"] for each in engine.reads] == [(0, 3), (0, 3), (1, 3)], "only what may have come since"


def test_who_follows_changes_is_told_of_a_replaced_row_by_a_patch_that_no_ledger_takes() -> None:
    log, store = log_with(2), Store([row(9, 1)])
    for write in (False, True):
        assert list(log.read(PATCHES, 0, 0)) == []
        folder(log, Engine([patch(0, 1), patch(1, 2)]), store).fold(["a"], None, write=write)
    (record,) = log.read(PATCHES, 0, 0)
    (touched,) = touches(patches_of([record], {"totals@1": TOTALS}, 1)).values()
    assert touched == {"a": Touch(0, 0, None)}
    batch, ledger = Batch(1), initial_ledger({"0": 2}, 0)
    read_into(batch, record.key.encode(), record.value)
    assert [record.key for record in batch.patches["totals@1"]] == ["a"]
    assert take_new(ledger, batch, "totals@1") == []
    assert ledger == initial_ledger({"0": 2}, 1)
    store.rows = [row(3, 1)]
    folder(log, Engine([patch(0, 1), patch(1, 2)]), store).fold(["a"], None, write=True)
    assert log.end(PATCHES, 0) == 1, "what is equal is not announced"


def test_a_row_that_keeps_changing_is_left_as_it_is() -> None:
    store = Store([row(9, 0)], refuses=99)
    (found,) = folder(log_with(1), Engine([patch(0, 1)]), store).fold(["a"], None, write=True)
    assert (found.outcome, store.written) == ("undecided", [])


def test_an_event_that_is_erased_meanwhile_is_not_written() -> None:
    log, engine = log_with(2), Engine([patch(0, 1), patch(1, 2)])

    def erase() -> None:
        if len(engine.reads) == 1:
            append(log, "thing/a/1", None)
            del engine.log[0]

    store = Store([row(9, 1)], refuses=1, on_read=erase)
    (found,) = folder(log, engine, store).fold(["a"], None, write=True)
    assert (found.outcome, store.written) == ("replaced", [{"total": 2}])


def test_a_store_that_has_not_applied_what_it_must_have_is_left_as_it_is() -> None:
    store = Store([row(9, 0)])
    late = folder(log_with(2), Engine([patch(0, 1), patch(1, 2)]), store, after={"0": 1})
    (found,) = late.fold(["a"], None, write=True)
    assert (found.outcome, store.written) == ("undecided", [])
    store.rows = [StoredRow({"total": 9}, {"0": Place(2, 0)})]
    (found,) = late.fold(["a"], None, write=True)
    assert (found.outcome, store.written) == ("replaced", [{"total": 3}])


def test_a_captured_row_of_which_compaction_removed_the_record_is_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Engine([patch(1, 2)])  # the record at 0 is gone, because that at 1 has replaced it
    store = Store([row(1, 0), row(2, 1)])
    assert folder(log_with(2), engine, Store([row(1, 0)])).fold(["a"], None)[0].outcome == "differs"
    monkeypatch.setitem(vars(TOTALS), "topics", (EVENTS, "cdc.crm.public.clients"))
    monkeypatch.setattr(RowFolder, "_sources", lambda *_: ["0"])
    assert folder(log_with(2), engine, store).fold(["a"], None)[0].outcome == "equal"


def test_a_row_without_events_is_removed() -> None:
    store = Store([row(5, 0)])
    (found,) = folder(log_with(1), Engine([]), store).fold(["a"], None, write=True)
    assert (found.outcome, store.written, found.folded) == ("replaced", [None], None)


BY_DAY = TableView(
    "by_day",
    ("group", "due"),
    {"total": add({Put: "small"})},
    (Postgres(), Cache()),
    key_name="key",
    expires={"due": "30d"},
)


@pytest.mark.parametrize("age_days", [29, 31])
@pytest.mark.parametrize("stored", [True, False])
def test_a_row_that_was_removed_because_it_expired_is_not_asked_back(age_days: int, stored: bool) -> None:
    due = str(datetime.now(UTC).date() - timedelta(days=age_days))
    whole = {"group": "g", "due": due, "total": 3}
    store = Store([StoredRow({**whole, "total": 2} if stored else None, {"0": Place(0, 0)})])
    engine = Engine([Patch("a", "0", Place(0, 0), dict(whole))])
    (found,) = replace(folder(log_with(1), engine, store), target=Target(BY_DAY, 1)).fold(["a"], None, write=True)
    is_removed = not stored and age_days == 31
    assert found.outcome == ("equal" if is_removed else "replaced")
    assert store.written == ([] if is_removed else [whole]), "a row that is still there is put right"
