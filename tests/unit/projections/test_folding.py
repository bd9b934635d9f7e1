"""A view compiled to Python means what the reference means: rows, in parts of any size, and what nobody can read."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.registry import CommandRegistry
from headwater.eventlog.envelope import Envelope, Position, encode
from headwater.projections.errors import StoreUnavailable
from headwater.projections.folding import pool
from headwater.projections.folding.slices import code_digest
from headwater.projections.folding.tasks import TaskFailed, divided
from headwater.projections.folding.writing import batches
from headwater.projections.limits import NAMED_LETTERS
from headwater.projections.reading.compiled import compiled
from headwater.projections.reading.fold_records import (
    ALWAYS,
    Erased,
    FoldedView,
    Folder,
    Part,
    Rows,
    Times,
)
from headwater.projections.reading.program import decoders
from headwater.projections.reading.runtime import Unclear, time_text
from headwater.projections.stores.declared import Postgres
from headwater.projections.stores.documents import DocumentForm
from headwater.projections.table.event_data import problem
from headwater.projections.table.expressions import Source, format_milliseconds
from headwater.projections.table.folds import add, collect, count, distinct, last, nested, top
from headwater.projections.table.types import format_time
from headwater.projections.table.view import TableView
from headwater.projections.testing.contracts import history as random_history
from tests.bench._flight_views import Flown
from tests.contracts.fold_views import FOLD_VIEWS, odd_moves
from tests.contracts.view_histories import BY_GROUP, BY_THING, Put, Removed, Restored, Taken
from tests.support.bad_records import BAD
from tests.support.domains import SHIPPED
from tests.support.event_histories import ANNOTATIONS, events, recorded
from tests.support.nested_histories import nested_event, nested_source, nested_views
from tests.support.seeds import examples, seed_of, sweep
from tests.support.shares import share_of
from tests.support.spark_histories import history
from tests.support.states import differences, expected_states, touched
from tests.support.table_views import table_views
from tests.support.topic_records import reason_of
from tests.support.versioned import REASONS, readable, unreadable, versioned, weighed

SHIPPED_VIEWS = table_views(SHIPPED)
AGGREGATES = list(CommandRegistry.load(SHIPPED).aggregates.values())
FOLDED = {view.name: view for view in (BY_THING, BY_GROUP, *FOLD_VIEWS.values())}


@dataclass
class Record:
    """As Kafka's client has it."""

    at: int
    timestamp_ms: int
    named: bytes | None
    text: bytes | None

    @classmethod
    def of(cls, source: Source) -> Record:
        return cls(source.position.offset, source.timestamp_ms, source.envelope.id.encode(), source.record.encode())

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return 1, self.timestamp_ms

    def key(self) -> bytes | None:
        return self.named

    def value(self) -> bytes | None:
        return self.text


WITHOUT_SHRINKING = [Phase.explicit, Phase.reuse, Phase.generate]
"""What fails here is shrunk for minutes, and no clearer then."""


def whole(view: TableView, sources: Sequence[Source]) -> tuple[Rows, dict[int, str]]:
    """The rows of the compiled view, and by offset the reason why a record cannot be read."""
    (fold,) = folder_of(view, sources).views
    return fold.drain(), {letter.offset: reason_of(letter) for letter in fold.letters}


def folder_for(*views: TableView, times: Times = ALWAYS, erased: Erased | None = None) -> Folder[FoldedView]:
    """As in another process, but for a view whose module exists in this process only."""
    alone = [decoders([view]) for view in views] if len(views) > 1 else []
    made = decoders(views), [compiled(view) for view in views], alone
    if all(view.name != "with_own_fold" for view in views):
        made = cloudpickle.loads(cloudpickle.dumps(made))  # type: ignore[no-untyped-call]
    shared, programs, alone = made
    return Folder(FoldedView, shared, programs, times, erased, alone)


def folder_of(view: TableView, sources: Iterable[Source]) -> Folder[FoldedView]:
    folder = folder_for(view)
    for source in sources:
        folder.add(str(source.position.partition), [Record.of(source)])
    return folder


def states(view: TableView, rows: Rows) -> dict[str, dict[str, Any]]:
    names = [field.name for field in view.layout.fields]
    return {key: touched(dict(zip(names, row, strict=True))) for key, row in rows.items()}


def check(view: TableView, sources: Sequence[Source], seed: int = 1) -> None:
    (whole,) = folder_of(view, sources).views
    assert whole.letters == []
    assert differences(states(view, whole.drain()), expected_states(view, sources)) == []

    program = compiled(view)
    chance, together = random.Random(seed), FoldedView(program)
    dealt: list[list[Source]] = [[] for _ in range(4)]
    for source in sources:
        chance.choice(dealt).append(source)
    for part in dealt:
        together.take_in(
            msgspec.msgpack.decode(msgspec.msgpack.encode(folder_of(view, part).views[0].drain()), type=Rows)
        )
    assert differences(states(view, together.made), expected_states(view, sources)) == []

    form = DocumentForm.of(view)
    stored = [
        form.from_arrow(row) for batch in batches(program, together.made.items(), set()) for row in batch.to_pylist()
    ]
    assert differences({key: touched(state) for key, state in stored}, expected_states(view, sources)) == []


@pytest.mark.parametrize("name", FOLDED)
@pytest.mark.parametrize("seed", sweep(3, 1))
def test_every_fold_over_every_type_is_the_references(name: str, seed: int) -> None:
    view = FOLDED[name]
    events: list[type[Event]] = [Put, Taken, Removed, Restored]
    if name in FOLD_VIEWS:
        events = list(view.plan.events.values())
    check(view, random_history(view, events, seed, length=150).sources, seed)


@pytest.mark.parametrize("name", ["between_groups", "items_and_moves", "moves_of_small"])
def test_an_event_that_is_odd_changes_all_of_its_rows_or_none(name: str) -> None:
    view, sources = FOLD_VIEWS[name], odd_moves()
    rows, reasons = whole(view, sources)
    told = {source.position.offset: problem([view.plan], source.envelope) for source in sources}
    assert reasons == {offset: reason for offset, reason in told.items() if reason is not None}
    assert 0 < len(reasons) < len(sources)
    assert differences(states(view, rows), expected_states(view, sources)) == []


SHORT_LISTS = TableView(
    "short_lists",
    "route",
    {
        "planes": distinct({Flown: "tail"}, limit=3),
        "latest": collect({Flown: "carrier"}, limit=2),
        "earliest": collect({Flown: "carrier"}, limit=3, newest=False),
        "most_delayed": top(2, {Flown: {"plane": "tail"}}, by="delay_minutes"),
        "least_delayed": top(3, {Flown: "tail"}, by="delay_minutes", highest=False),
        "carriers": nested(
            "carrier",
            {Flown: "carrier"},
            {"flights": count(Flown), "minutes": add({Flown: "air_minutes"}), "plane": last({Flown: "tail"})},
            limit=3,
        ),
    },
    (Postgres(),),
)


@pytest.mark.parametrize("seed", range(4))
def test_lists_that_outgrow_their_limits_are_the_references(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.projections.reading.lists.SPARE_ENTRIES", seed)
    chance = random.Random(seed)
    sources = []
    for number in range(400):
        data = {
            "route": chance.choice("ab"), "carrier": f"C{chance.randrange(20)}", "tail": f"N{chance.randrange(40)}",
            "delay_minutes": chance.randrange((30, 1_000_000)[seed % 2]), "air_minutes": chance.randrange(500),
        }  # fmt: skip
        at = datetime.fromtimestamp(1_767_323_045 + chance.randrange(100), UTC)
        made = Envelope(f"flight/{number}/1", Flown.type, f"flight/{number}", at, data, sequence=1)
        place = Position(chance.randrange(3), number)
        sources.append(Source(made, place, int(at.timestamp() * 1000), encode(made).decode()))
    check(SHORT_LISTS, sources, seed)


@pytest.mark.parametrize("name", SHIPPED_VIEWS)
def test_rows_of_random_histories_are_the_references(name: str) -> None:
    for seed in (1, 2):
        check(SHIPPED_VIEWS[name], history(AGGREGATES, seed, 150, 3), seed)


@pytest.mark.parametrize("seed", range(2))
def test_views_that_are_folded_together_have_the_rows_of_each_alone(seed: int) -> None:
    views = [*FOLDED.values(), *SHIPPED_VIEWS.values()]
    events = list({event.type: event for view in FOLDED.values() for event in view.plan.events.values()}.values())
    sources = [*random_history(BY_GROUP, events, seed, length=100).sources, *history(AGGREGATES, seed, 100, 3)]
    folder = folder_for(*views)
    for source in sources:
        folder.add(str(source.position.partition), [Record.of(source)])
    for view, fold in zip(views, folder.views, strict=True):
        assert fold.letters == [], view.name
        assert differences(states(view, fold.drain()), expected_states(view, sources)) == [], view.name


def test_what_one_view_cannot_read_the_others_fold() -> None:
    (put,) = random_history(BY_THING, [Put], 1, length=1, repeated=False).sources
    document = json.loads(put.record)
    owner = TableView("by_text", "text", {"puts": count(Put)}, (Postgres(),))
    puts = TableView("puts", "thing_id", {"puts": count(Put)}, (Postgres(),))
    folder = folder_for(owner, puts)
    for wrong in (None, 7):  # which the decoders refuse that they share, too
        document["data"]["text"] = wrong
        folder.add("0", [Record(7, 77, b"key", json.dumps(document).encode())])
    owners = states(owner, folder.views[0].drain())
    assert ([len(fold.letters) for fold in folder.views], owners) == ([1, 0], {"7": {"puts": 1}})
    assert states(puts, folder.views[1].drain()) == {document["data"]["thing_id"]: {"puts": 2}}


@given(st.data())
@settings(
    max_examples=30,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_version_and_every_wrong_value_is_the_references(data: st.DataObject) -> None:
    event = data.draw(events())
    rows = st.tuples(st.integers(0, event.version + 1), st.sampled_from([0, 4, 12])).flatmap(
        lambda each: st.tuples(st.just(each[0]), recorded(event, max(each[0], 1), each[1]))
    )
    sources = [versioned(at, event, *row) for at, row in enumerate(data.draw(st.lists(rows, min_size=20, max_size=40)))]
    columns = {name: last({event: name}) for name in ANNOTATIONS}
    view = TableView("probed", "probe", {**columns, "events": count(event)}, (Postgres(),))
    found, reasons = whole(view, sources)
    assert differences(states(view, found), expected_states(view, sources)) == []
    problems = {source.position.offset: problem([view.plan], source.envelope) for source in sources}
    assert reasons == {offset: reason for offset, reason in problems.items() if reason is not None}


def test_nested_fields_of_every_version_are_the_references() -> None:
    for number in range(examples(20)):
        chance = random.Random(seed_of(number))
        event = nested_event(chance)
        sources = [nested_source(at, event, chance) for at in range(60)]
        for view in nested_views(event):
            found, reasons = whole(view, sources)
            assert differences(states(view, found), expected_states(view, sources)) == [], (number, event.history)
            problems = {source.position.offset: problem([view.plan], source.envelope) for source in sources}
            assert reasons == {offset: reason for offset, reason in problems.items() if reason is not None}, number


def test_older_versions_are_compiled_too() -> None:
    folder = folder_of(weighed, readable())
    assert folder.views[0].letters == []
    assert {key: row[1] for key, row in folder.views[0].drain().items()} == {"a": 2000, "b": 3000, "c": 4}
    _, reasons = whole(weighed, unreadable())
    assert list(reasons.values()) == list(REASONS)


def test_a_record_that_is_no_event_is_told_as_the_live_query_tells_it() -> None:
    for body, reason in BAD.items():
        assert reason in refused(body)


def refused(body: bytes) -> str:
    """Why a record is refused."""
    folder = folder_for(BY_THING)
    folder.add("1", [Record(7, 77, b"bad", body)])
    (letter,) = folder.views[0].letters
    return reason_of(letter)


def test_a_record_that_is_nested_too_deep_is_no_event() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    body = b'{"specversion":"1.0","id":"x/1","type":"x","subject":"x","sequence":1,"data":{"deep":%b}}' % deep
    assert "malformed JSON" in refused(body)


@pytest.mark.parametrize("at", ["2026-01-31", "now", 5])
def test_a_time_that_is_written_in_another_way_is_none(at: Any) -> None:
    (whole,) = random_history(BY_THING, [Put], 1, length=1, repeated=False).sources
    document = json.loads(whole.record)
    document["data"]["at"] = at
    folder = folder_for(BY_THING)
    folder.add("0", [Record(7, 77, b"key", json.dumps(document).encode())])
    (row,) = states(BY_THING, folder.views[0].drain()).values()
    assert folder.views[0].letters == []
    assert at not in row.values(), "it may be null"


def test_events_are_counted_without_heartbeats_tombstones_and_what_is_left_out() -> None:
    sources = random_history(BY_GROUP, [Put, Taken], 1, 20).sources
    beat = b'{"specversion":"1.0","type":"headwater.heartbeat"}'
    others = [Record(90, 5, b"heartbeat/0", beat), Record(91, 5, b"thing/1/1", None), Record(92, 5, b"x", b"no event")]
    records = [replace(Record.of(source), at=number) for number, source in enumerate(sources)]
    folder = folder_for(BY_GROUP)
    folder.add("0", [*records, *others])
    folder.add("0", others[:2])
    folder.add("1", records[:3])
    assert folder.events == {"0": len(sources) + 1, "1": 3}, "a record that cannot be read is counted too"
    times = sorted(record.timestamp_ms for record in records)
    later = folder_for(BY_GROUP, times=Times(since_ms=times[5]))
    later.add("0", records)
    assert later.events == {"0": sum(time >= times[5] for time in times)}
    first = records[0]
    erased = folder_for(BY_GROUP, erased={"0": {first.named or b"": 50}})
    erased.add("0", records)
    assert erased.events == {"0": len(sources) - sum(record.named == first.named for record in records)}


def test_heartbeats_are_nothing_and_tombstones_are_named() -> None:
    folder = folder_for(SHIPPED_VIEWS["streams"])
    beat = b'{"specversion":"1.0","type":"headwater.heartbeat"}'
    folder.add(
        "2", [Record(5, 77, b"heartbeat/2", beat), Record(6, 78, b"listing/L1/1", None), Record(7, 79, None, None)]
    )
    assert (folder.views[0].made, folder.views[0].letters) == ({}, [])
    assert folder.tombstones == {"2": {b"listing/L1/1": 6}}
    folder.add("2", [Record(8, 80, b"heartbeat/1", beat)])
    assert [letter.offset for letter in folder.views[0].letters] == [8]


def test_what_a_later_tombstone_erases_is_left_out_and_nothing_else() -> None:
    sources = random_history(BY_THING, [Put], 1, length=40, repeated=False).sources
    gone, kept = sources[3], sources[4]
    erased = {
        str(gone.position.partition): {gone.envelope.id.encode(): gone.position.offset + 1},
        str(kept.position.partition): {kept.envelope.id.encode(): kept.position.offset},
    }
    if gone.position.partition == kept.position.partition:
        erased[str(gone.position.partition)][gone.envelope.id.encode()] = gone.position.offset + 1
    folder = folder_for(BY_THING, erased=erased)
    for source in sources:
        folder.add(str(source.position.partition), [Record.of(source)])
    left = [source for source in sources if source is not gone]
    assert differences(states(BY_THING, folder.views[0].drain()), expected_states(BY_THING, left)) == []


def test_times_bound_what_is_folded() -> None:
    sources = random_history(BY_THING, [Put], 1, length=40, repeated=False).sources
    since, until = (sorted(source.timestamp_ms for source in sources)[at] for at in (10, 30))
    folder = folder_for(BY_THING, times=Times(since, until))
    for source in sources:
        folder.add(str(source.position.partition), [Record.of(source)])
    left = [source for source in sources if since <= source.timestamp_ms < until]
    assert 0 < len(left) < len(sources)
    assert differences(states(BY_THING, folder.views[0].drain()), expected_states(BY_THING, left)) == []


@pytest.mark.parametrize(
    "body",
    [
        b'{"specversion":"1.0","id":"thing/a/1","type":"thing.put","subject":"thing/a","sequence":1,"data":[1]}',
        b'{"specversion":"1.0","id":"thing/a/1","type":"thing.put","subject":"thing/a","sequence":1,"data":null}',
        b'{"specversion":"1.0","id":"thing/a/1","type":"thing.put","subject":"thing/a","sequence":1}',
        b'{"specversion":"1.0","id":"x","type":"thing.put","subject":"s","sequence":99999999999999999999}',
        b'{"specversion":"1.0","id":7,"type":"thing.put","subject":"s","sequence":1,"dataversion":true}',
        b'{"specversion":"1.0","id":"x","type":"other","subject":"s","sequence":1,"data":{"x":"\xff"}}',
    ],
)
def test_what_is_wrong_in_an_envelope_ends_no_fold(body: bytes) -> None:
    assert refused(body)


def test_ranges_are_shared_among_processes() -> None:
    parts = [Part("0", 5, 105), Part("1", 0, 0), Part("2", 0, 21)]
    assert divided(parts, 2) == [[Part("0", 5, 66)], [Part("0", 66, 105), Part("2", 0, 21)]]
    assert divided(parts, 1) == [parts[:1] + parts[2:]]
    assert divided([Part("0", 0, 0)], 2) == []
    assert divided([Part("0", 0, 1)], 4) == [[Part("0", 0, 1)]]


class Full:
    def write(self, rows: Any) -> int:
        raise StoreUnavailable("postgres", "it is full")


class Killed:
    def write(self, rows: Any) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return 0


class Counting:
    def write(self, rows: Any) -> int:
        return sum(batch.num_rows for batch in rows)


@pytest.mark.programs
def test_a_task_that_fails_says_why_in_its_parent_and_the_next_view_is_written() -> None:
    program = compiled(BY_THING)
    row = [None] * len(program.fields)
    with pool.opened(1) as workers:
        for writer, why in ((Full(), "it is full"), (Killed(), "a process was killed")):
            with pytest.raises(TaskFailed, match=why):
                workers.write(0, program, [share_of([{"a": row}], 1)], [writer])
        assert workers.write(0, program, [share_of([{"a": row}], 1)], [Counting()]).rows == 1


def test_unreadable_records_are_all_counted_and_some_of_them_named() -> None:
    folder = folder_for(BY_THING)
    folder.add("0", [Record(at, 1, b"key", b"no event") for at in range(NAMED_LETTERS + 5)])
    (view,) = folder.views
    assert (view.poison, len(view.letters)) == (NAMED_LETTERS + 5, NAMED_LETTERS)


@given(st.integers(min_value=-(10**12), max_value=10**13))
def test_the_time_of_a_record_is_written_like_any_time_and_exactly(timestamp_ms: int) -> None:
    exact = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=timestamp_ms)
    assert format_milliseconds(timestamp_ms) == format_time(exact)


def test_times_at_the_end_of_the_calendar_are_exact() -> None:
    assert format_milliseconds(253_402_300_799_999) == "9999-12-31T23:59:59.999Z"
    with pytest.raises(ValueError, match="year"):
        format_milliseconds(253_402_300_800_000)


def test_time_texts_are_those_of_rows() -> None:
    assert time_text("2026-01-02T03:04:05.678901+01:00") == "2026-01-02T02:04:05.678Z"
    assert time_text("2026-01-02 03:04:05") == "2026-01-02T03:04:05.000Z"
    assert time_text(None) is None
    for wrong in ("2026-01-02", "2026-02-30T00:00:00Z", "0001-01-01T00:00:00+05:00", "now", ""):
        with pytest.raises(Unclear):
            time_text(wrong)


def test_slices_belong_to_the_code_that_folded_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    here = code_digest()
    code_digest.cache_clear()
    assert code_digest() == here
    (tmp_path / "folds").mkdir()
    (tmp_path / "folds" / "added.py").write_text("")
    monkeypatch.setattr("headwater.projections.__path__", [str(tmp_path)])
    code_digest.cache_clear()
    other = code_digest()
    (tmp_path / "folds" / "added.py").write_text("# other")
    code_digest.cache_clear()
    assert len({here, other, code_digest()}) == 3
    code_digest.cache_clear()
