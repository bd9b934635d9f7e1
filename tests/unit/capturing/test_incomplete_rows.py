"""What is done about rows whose records lack values, with Kafka Connect and a database in memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

import pytest

from headwater.eventlog.capturing import Captured
from headwater.eventlog.capturing.kafka_connect import TABLES
from headwater.eventlog.programs.metrics import REGISTRY
from tests.unit.capturing.captured_world import BOTH, PAUSED, RUNNING, Person, Place, World

COUNTED = "headwater_source_incomplete_rows_total"
LACKING = {Person: [["1"], ["2"]], Place: [["7"]]}


class Rows:
    """Takes the place of what follows the topics."""

    def __init__(self, lacking: Mapping[type[Captured], Sequence[Sequence[str]]]) -> None:
        self.lacking, self.forgotten = lacking, set[type[Captured]]()

    def find(self, tables: Sequence[type[Captured]]) -> Mapping[type[Captured], Sequence[Sequence[str]]]:
        return {table: keys for table, keys in self.lacking.items() if table in tables}

    def forget(self, tables: Iterable[type[Captured]]) -> None:
        self.forgotten |= set(tables)


@pytest.fixture
def rows(world: World) -> Rows:
    world.capture(BOTH)
    world.is_slow = True  # so that what it is told stays in its offset
    world.apart = [Person, Place]
    return Rows(LACKING)


def read_incomplete(world: World, rows: Rows) -> list[str]:
    return world.operator(BOTH).read_incomplete(rows, 0.0)  # type: ignore[arg-type]


def said(count: int, table: str) -> str:
    what = f'rows of table "public.{table}" that lacked long values are read again ({count})'
    return f"{what}: to prevent it, run ALTER public.{table}"


def told(world: World) -> dict[str, str]:
    """The conditions that the connector was told, by table."""
    entries = json.loads((world.stored_offset or {}).get(TABLES, "[]"))
    return {entry[f"{TABLES}_id"]: entry[f"{TABLES}_additional_condition"] for entry in entries}


def counted() -> float:
    return REGISTRY.get_sample_value(COUNTED, {"source": "crm", "table": "public.people"}) or 0.0


def test_they_are_read_again_and_forgotten(world: World, rows: Rows) -> None:
    before = counted()
    assert read_incomplete(world, rows) == [said(2, "people"), said(1, "places")]
    assert told(world) == {"public.people": "1, 2", "public.places": "7"}
    assert rows.forgotten == {Person, Place}
    assert world.connector is RUNNING
    assert counted() == before + 2


def test_rows_that_are_gone_are_forgotten_without_a_stop(world: World, rows: Rows) -> None:
    world.gone = {"1", "7"}
    assert read_incomplete(world, rows) == [said(1, "people")]
    assert told(world) == {"public.people": "2"}
    assert rows.forgotten == {Person, Place}
    world.gone, world.told = {"1", "2", "7"}, []
    assert read_incomplete(world, rows) == []
    assert world.told == []


def test_a_table_that_cannot_be_read_again_is_named_and_the_others_are_read(world: World, rows: Rows) -> None:
    world.uncompared["public.people"] = "its key column is a timestamp"
    problem, other = read_incomplete(world, rows)
    assert 'table "public.people" cannot be read again while changes go on' in problem
    assert other == said(1, "places")
    assert told(world) == {"public.places": "7"}
    assert rows.forgotten == {Place}


@pytest.mark.parametrize("hindrance", ["another command", "behind", "paused"])
def test_they_wait(world: World, rows: Rows, hindrance: str) -> None:
    world.is_held = hindrance == "another command"
    world.captured = hindrance != "behind"
    world.connector = before = PAUSED if hindrance == "paused" else RUNNING
    assert read_incomplete(world, rows) == []
    assert told(world) == {}
    assert rows.forgotten == set()
    assert world.connector is before


def test_tables_whose_changes_have_all_values_are_not_followed(world: World, rows: Rows) -> None:
    world.apart = [Place]
    assert read_incomplete(world, rows) == [said(1, "places")]
    assert told(world) == {"public.places": "7"}
