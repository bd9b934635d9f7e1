"""Every version of every event that was ever released can be read; golden files hold one of each."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from command_histories import values
from hypothesis import given, settings
from hypothesis import strategies as st

from commands.codec import read_event
from commands.declaring.aggregate import Event
from commands.declaring.registry import CommandRegistry
from commands.declaring.steps import Conversion, Parsed, Recoded, Rounded, Scaled
from commands.declaring.upcasting import Constant, Converted, Lineage, Part, Recorded
from eventlog.envelope import Envelope
from tests.domains import COVERED
from tests.golden import HOW, folder, path, read

REGISTRY = CommandRegistry.load(COVERED)
RELEASED = [(event, version) for event in REGISTRY.events.values() for version in range(1, event.version + 1)]
every_version = pytest.mark.parametrize(
    ("event", "version"), RELEASED, ids=[f"{event.type}-{version}" for event, version in RELEASED]
)


def read_typed(event: type[Event], version: int, data: Any) -> Event:
    aggregate = REGISTRY.aggregates[event.type.partition(".")[0]]
    stream = f"{aggregate.name}/{data.get(aggregate.id_field, 'A')}"
    time = datetime(2026, 1, 2, tzinfo=UTC)
    return read_event(aggregate, Envelope(f"{stream}/1", event.type, stream, time, data, data_version=version))


@every_version
def test_every_released_version_is_kept_readable(event: type[Event], version: int) -> None:
    assert path(event, version).exists(), f"{event.type} has no golden file of version {version}: {HOW}"
    recorded = read(event, version)
    made = read_typed(event, version, recorded)
    if version == event.version:
        again = orjson.loads(made.model_dump_json(by_alias=True))
        assert again == recorded, f"{event.type} changed: raise its version, and tell its history what was done"
    else:
        later = event.history.upcast(version, recorded, until=version + 1)
        assert later == read(event, version + 1), f"what came after version {version} of {event.type} was another step"


def test_no_golden_file_is_of_a_version_that_is_not_declared() -> None:
    for event in REGISTRY.events.values():
        kept = {int(file.stem) for file in folder(event).glob("*.json")}
        declared = set(range(1, event.version + 1))
        assert kept <= declared, f"{event.type} went back to version {event.version}: what was released stays readable"


older = [(event, version) for event, version in RELEASED if version < event.version]


@pytest.mark.parametrize(("event", "version"), older, ids=[f"{event.type}-{version}" for event, version in older])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_upcasting_is_total(event: type[Event], version: int, data: st.DataObject) -> None:
    """Whatever an older version could record is read: see `recordings`."""
    read_typed(event, version, data.draw(recordings(event, version)))


def recordings(event: type[Event], version: int) -> st.SearchStrategy[dict[str, Any]]:
    """Data of an older version: of each field, values from which its steps make what the event holds now."""
    schema = event.model_json_schema()
    fields: dict[str, st.SearchStrategy[Any]] = dict.fromkeys(event.history.fields_of(version), st.none())
    for name, lineage in event.history.lineages(version).items():
        recorded, made = source(lineage, values(schema["properties"][name], schema))
        if recorded is not None:
            fields[recorded] = made
    return st.fixed_dictionaries(fields)


def source(lineage: Lineage, current: st.SearchStrategy[Any]) -> tuple[str | None, st.SearchStrategy[Any]]:
    """The recorded field that a lineage starts from, and values of it."""
    match lineage:
        case Recorded():
            return lineage.name, current
        case Constant():
            return None, current
        case Part():
            return source(lineage.of, st.lists(current, max_size=lineage.parts).map(lineage.at.join))
        case Converted():
            return source(lineage.of, current.map(lambda value: before(lineage.how, value)))


def before(how: Conversion, value: Any) -> Any:
    """A value that is converted to `value`, or to one near it."""
    match how:
        case Scaled():
            return value // how.by if isinstance(value, int) and isinstance(how.by, int) and how.by else value
        case Rounded():
            return value / how.times
        case Parsed():
            return str(value)
        case Recoded():
            return {new: old for old, new in how.words}.get(value, value)
        case _:
            return int(value)
