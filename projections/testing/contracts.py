"""Tests that every view must pass, for pytest, and the random histories that they run on; needs the extra `testing`."""

from __future__ import annotations

import random
import string
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, Literal
from uuid import UUID

import orjson
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.exact_numbers import KEPT_DIGITS
from headwater.commands.declaring.field_kinds import Digits, FieldKind, Form, field_kinds
from headwater.commands.declaring.registry import CommandRegistry
from headwater.eventlog.envelope import Envelope, Position, encode, partition_of, timestamp_ms
from headwater.eventlog.programs.modules import find
from headwater.eventlog.source_positions import source_id
from headwater.eventlog.topics import EVENTS
from headwater.projections.kinds import KINDS
from headwater.projections.reading.reader import fold, lift
from headwater.projections.registry import ViewRegistry
from headwater.projections.stores.memory import Memory, MemoryStore
from headwater.projections.stores.names import patch_partition
from headwater.projections.stores.store import Batch, Target, ViewStore
from headwater.projections.table.decimals import EXACT, MAX_DIGITS
from headwater.projections.table.expressions import Field, Source
from headwater.projections.table.patch import Patch
from headwater.projections.table.row_keys import KeyParts
from headwater.projections.table.rows import CapturedRow
from headwater.projections.table.types import PYTHON_TYPES, ColumnType
from headwater.projections.table.view import TableView
from headwater.projections.testing.rows import check_sources

START = datetime(2026, 1, 1, tzinfo=UTC)
SOURCES = 3
PARTITIONS = 3
KEYS = (
    "a",
    "b",
    "ä/ö ß",
    "日本",
    "😀",
    "it's",
    'say "no"',
    "back\\slash",
    "tab\tline\n",
    "%s {x} $1",
    "*?[a]",
    "x" * 600,
    "",
)
SUMMED_DIGITS = MAX_DIGITS - 3
"""The sum of a history's decimals with at most so many digits fits its column."""
TEXTS = (*KEYS, "null", "x" * 9_000, "\u2028", "-1")

LENGTH: Final = 40
"""The length of a random history, in events."""


@dataclass(frozen=True)
class Emission:
    """One record of `patches`: a row's patch, or progress (source, offset)."""

    tag: str
    patch: Patch | None = None
    progress: tuple[str, int] | None = None


@dataclass
class History:
    """Events, and their patches in `patches`, with duplicates."""

    view: TableView
    sources: list[Source]
    patches: dict[int, list[Emission]] = field(
        default_factory=lambda: {partition: [] for partition in range(PARTITIONS)}
    )

    @property
    def ends(self) -> dict[int, int]:
        """The number of records in each partition of `patches`."""
        return {partition: len(records) for partition, records in self.patches.items()}

    def whole(self, partition: int) -> Batch:
        """All records of a partition."""
        return self.batch(partition, 0, len(self.patches[partition]))

    def batch(self, partition: int, start: int, end: int) -> Batch:
        """The records of a partition in these offsets, as a loader passes them to a store."""
        records = self.patches[partition][start:end]
        batch = Batch(start + len(records))
        for record in records:
            if record.patch is not None:
                batch.patches.setdefault(record.tag, []).append(record.patch)
            if record.progress is not None:
                source, offset = record.progress
                reached = batch.progress.setdefault(record.tag, {})
                reached[source] = max(offset, reached.get(source, -1))
        return batch


def history(
    view: TableView, events: Sequence[type[Event]], seed: int, length: int = 120, repeated: bool = True
) -> History:
    """A random history; repeated: the emitter sometimes restarts, and emits some patches again."""
    chance = random.Random(seed)
    sources_drawn = _sources(view, events, chance, length)
    return History(view, sources_drawn, _patches(view, sources_drawn, chance, repeated))


def _sources(view: TableView, events: Sequence[type[Event]], chance: random.Random, length: int) -> list[Source]:
    versions: dict[str, int] = {}
    offsets: dict[str, int] = {}
    sources_drawn = []
    for _ in range(length):
        event = chance.choice(events)
        data = _values(event, chance)
        if issubclass(event, CapturedRow):
            sources_drawn.append(_changed(event, data, chance, offsets))
            continue
        for name in event.identity.names:
            if type(data[name]) is not int:
                data[name] = chance.choice(KEYS)
        for name in _key_fields(view, event):
            data[name] = chance.choice(KEYS)
        if "sku" in data:
            data["sku"] = chance.choice(KEYS[:8])
        stream = f"{event.type.partition('.')[0]}/{event.identity.of_data(data)}"
        version = versions[stream] = versions.get(stream, 0) + 1
        partition = partition_of(stream, SOURCES)
        offset = _next(offsets, source_id(EVENTS, partition), chance)
        # clocks differ between processes, and two events may have one time
        time = START + timedelta(milliseconds=chance.randrange(length * 4))
        what = Envelope(
            f"{stream}/{version}", event.type, stream, time, data, data_version=event.version, sequence=version
        )
        sources_drawn.append(Source(what, Position(partition, offset), timestamp_ms(time), encode(what).decode()))
    return sources_drawn


def _key_fields(view: TableView, event: type[Event]) -> list[str]:
    """The fields of an event that are keys of rows, or that have the name of one."""
    if isinstance(view.key, str):
        kinds = field_kinds(event)
        return [view.key] if view.key in kinds and kinds[view.key].kind is str else []
    keys = view.plan.keys(event) if isinstance(view.key, Mapping | tuple) else ()
    named = {name for key in keys if isinstance(key, Field | KeyParts) for name in key.fields()}
    return sorted(name for name in named if field_kinds(event)[name].kind is str)


def _changed(
    event: type[CapturedRow], data: Mapping[str, Any], chance: random.Random, offsets: dict[str, int]
) -> Source:
    """A change of a captured row."""
    key, topic = chance.choice(KEYS), event.table.topic()
    partition = partition_of(key, SOURCES)
    offset = _next(offsets, source_id(topic, partition), chance)
    what = Envelope(f"{topic}/{offset}", event.type, key, START, data, data_version=1, sequence=offset)
    return Source(what, Position(partition, offset), timestamp_ms(START), "", topic)


def _next(offsets: dict[str, int], source: str, chance: random.Random) -> int:
    """The next offset in a source; markers and compaction leave gaps."""
    offsets[source] = offsets.get(source, 0) + chance.choice((1, 1, 1, 2, 5))
    return offsets[source]


def _patches(
    view: TableView, sources: Sequence[Source], chance: random.Random, repeated: bool
) -> dict[int, list[Emission]]:
    """Emit each source in its order; sources are interleaved at random."""
    patches: dict[int, list[Emission]] = {partition: [] for partition in range(PARTITIONS)}
    logs: dict[str, list[Source]] = {}
    for event in sources:
        logs.setdefault(source_id(event.topic, event.position.partition), []).append(event)
    at = dict.fromkeys(logs, 0)
    while unread := [name for name in logs if at[name] < len(logs[name])]:
        name = chance.choice(unread)
        source = logs[name][at[name]]
        at[name] += 1
        for patch in lift(view, source):
            sent = patch._replace(fields=orjson.loads(orjson.dumps(patch.fields)))
            patches[patch_partition(view, view.tag, patch.key, PARTITIONS)].append(Emission(view.tag, sent))
        if chance.random() < 0.1:
            for records in patches.values():
                records.append(Emission(view.tag, progress=(name, source.position.offset)))
        if repeated and chance.random() < 0.05:
            at[name] = max(0, at[name] - chance.randrange(12))
    return patches


def _values(model: type[BaseModel], chance: random.Random) -> dict[str, Any]:
    kinds, fields = field_kinds(model), model.model_fields.items()
    named = [(info.alias or name, info.annotation) for name, info in fields]
    return {name: _value(annotation, kinds[name], chance) for name, annotation in named}


def _value(annotation: Any, kind: FieldKind, chance: random.Random) -> Any:
    if kind.nullable and chance.random() < 0.2:
        return None
    literal = next(
        (literal for literal in (annotation, *typing.get_args(annotation)) if typing.get_origin(literal) is Literal),
        None,
    )
    if literal is not None:
        return chance.choice(typing.get_args(literal))
    inner = next(iter(typing.get_args(annotation)), None)
    if isinstance(inner, type) and issubclass(inner, BaseModel):
        items = [_values(inner, chance) for _ in range(chance.choice((0, 1, 2, 5)))]
        # few keys, so that items meet
        return [item | {name: chance.choice(KEYS[:8]) for name in item if name == "sku"} for item in items]
    if kind.form is not None:
        return _of_form(kind.form, chance)
    match PYTHON_TYPES.get(kind.kind):
        case ColumnType.TEXT:
            return chance.choice(TEXTS)
        case ColumnType.INTEGER:
            return chance.choice((0, 1, 2, 3, 7, -4, chance.randrange(-(2**40), 2**40)))
        case ColumnType.FLOAT:
            return chance.choice((0.0, 1.0, -1.5, chance.uniform(-80, 80)))
        case ColumnType.BOOLEAN:
            return chance.random() < 0.5
        case ColumnType.TIME:
            return f"2026-01-{chance.randrange(1, 29):02d}T10:11:12.{chance.randrange(1000):03d}Z"
        case _:
            return chance.choice(([], ["a", "ü"], chance.choices(string.ascii_letters, k=3)))


def _of_form(form: Form, chance: random.Random) -> Any:
    """A decimal, in any of the ways in which JSON may have it; or a date, or a UUID; few, so that some are equal."""
    if form is date:
        days = chance.choice((0, 1, 59, -(10**5), chance.randrange(10**6)))
        return (date(2026, 1, 1) + timedelta(days=days)).isoformat()
    if form is UUID:
        return str(UUID(int=chance.choice((0, 1, 2**128 - 1, chance.getrandbits(128)))))
    digits, places = (form.total, form.places) if isinstance(form, Digits) else (10, 2)
    most = 10 ** min(digits, SUMMED_DIGITS) - 1
    value = EXACT.scaleb(Decimal(chance.choice((0, 1, -1, most, -most, chance.randint(-most, most)))), -places)
    match chance.randrange(4):
        case 0 if digits <= KEPT_DIGITS:
            return float(value)  # JSON keeps so many digits
        case 1:
            return str(value.normalize(EXACT))
        case 2 if places:
            return f"{value:f}0"
        case _:
            return f"{value:f}"


Checked = Callable[..., None]


def contracts_of_views(*modules: str) -> type:
    """A class of tests for all views that `modules` declare.

        TestViews = contracts_of_views("bank.views")

    With random histories of the events that each view handles, the tests check that rows do not depend on the order in
    which parts of a history are combined, and that a loader that sometimes starts again writes the rows of a replay.

    modules: as in HEADWATER_MODULES; sub-modules are included. For a view of EVERY event, also name modules that
    declare aggregates. The hypothesis profile sets the number of histories.

    Raises UnknownModule or ModuleBroken if a module cannot be imported, ViewDeclarationError if a declaration is wrong,
    and ValueError if there is no view, or no event for one.
    """
    registry = ViewRegistry([view for kind in KINDS for view in find(modules, kind)])
    views = {view.name: view for view in registry.of_kind(TableView)}
    if not views:
        raise ValueError(f"no view in {', '.join(modules) or 'no module'}: name modules that declare views")
    every = list(CommandRegistry.load(modules).events.values())
    plans = {name: view.plan for name, view in views.items()}
    events = {name: every if plan.handles_every else list(plan.events.values()) for name, plan in plans.items()}
    if lacking := [name for name, found_events in events.items() if not found_events]:
        raise ValueError(f'"{lacking[0]}" handles every event: also name modules that declare aggregates')

    def test_any_order_makes_the_same_rows(view: TableView, seed: int) -> None:
        check_sources(view, drawn(view, events[view.name], seed).sources, seed)

    def test_live_rows_equal_a_replays(view: TableView, seed: int) -> None:
        live_equals_replay(view, drawn(view, events[view.name], seed), seed)

    # a smaller seed makes no simpler history
    phases = [phase for phase in settings().phases if phase not in (Phase.shrink, Phase.explain)]
    relaxed = settings(deadline=None, phases=phases, suppress_health_check=[HealthCheck.too_slow])
    with_seeds = given(seed=st.integers(0, 2**32 - 1))
    of_views = pytest.mark.parametrize("view", views.values(), ids=views)
    tests = (test_any_order_makes_the_same_rows, test_live_rows_equal_a_replays)
    return type("Contracts", (), {test.__name__: staticmethod(of_views(relaxed(with_seeds(test)))) for test in tests})


def drawn(view: TableView, events: Sequence[type[Event]], seed: int) -> History:
    """A random history of a view, the same for the same seed."""
    return history(view, events, seed, LENGTH)


def live_equals_replay(view: TableView, happened: History, seed: int) -> None:
    """Raises AssertionError if loading the patches in batches of any size gives other rows than a replay."""
    target, store = Target(view, 1), MemoryStore(Memory())
    store.create(target, {}, dict.fromkeys(range(PARTITIONS), 0))
    load(store, target, happened, random.Random(seed))
    assert store.rows(target) == fold(view, happened.sources)


def load(store: ViewStore, target: Target, happened: History, chance: random.Random) -> None:
    """Load to the end in batches of any size; sometimes go back, as a loader does after its partition moved."""
    at = {partition: ledger.next_offset for partition, ledger in store.ledgers(target).items()}
    while any(at[partition] < len(happened.patches[partition]) for partition in at):
        if chance.random() < 0.1:
            at = {partition: chance.randrange(offset + 1) for partition, offset in at.items()}
        ends = {partition: at[partition] + chance.randrange(1, 30) for partition in at if chance.random() < 0.7}
        store.apply(
            [target], {partition: happened.batch(partition, at[partition], end) for partition, end in ends.items()}
        )
        at |= {partition: min(end, len(happened.patches[partition])) for partition, end in ends.items()}
