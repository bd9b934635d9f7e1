"""One pass over a real log for several views: each that fails is named, and the others have their rows."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec import structs

from headwater.commands.declaring.aggregate import Event
from headwater.projections.errors import BulkLoadFailed, PoisonEvent
from headwater.projections.folding import pool
from headwater.projections.folding.engine import FoldingEngine
from headwater.projections.folding.tasks import SparkWorkers, Workers
from headwater.projections.generations.rebuild.engine import BulkResult, Load, Ranges
from headwater.projections.spark.setup.java import JavaError
from headwater.projections.spark.workers import SparkTasks
from headwater.projections.stores.declared import Postgres
from headwater.projections.table.expressions import Source
from headwater.projections.table.folds import Column, add, count, last
from headwater.projections.table.folds.fold import Cases, Ordering, Stored, one_kind, read
from headwater.projections.table.monoids import State, StateField
from headwater.projections.table.types import ColumnType
from headwater.projections.table.view import TableView
from tests.contracts.view_histories import Put, Taken
from tests.integration.projections_spark.test_spark_on_kafka import ToFiles
from tests.integration.replay.deployed import Deployed
from tests.integration.replay.things import things
from tests.support.spark_rows import session, states
from tests.support.states import differences, expected_states

pytestmark = [pytest.mark.complete, pytest.mark.xdist_group("another Spark session")]


@dataclass(frozen=True)
class BreakingPart:
    """A fold of one's own with a mistake."""

    field: StateField

    @property
    def fields(self) -> tuple[StateField, ...]:
        return (self.field,)

    def combine(self, row: State, patch: State) -> None:
        raise ZeroDivisionError("a mistake of one's own")


@dataclass(frozen=True, eq=False)
class Breaking:
    cases: Cases

    def kind(self) -> ColumnType:
        return one_kind(self.cases)

    def stored(self, name: str, ordering: Ordering) -> Stored:
        return Stored(
            BreakingPart(StateField(name, self.kind())),
            {case: {name: case_value} for case, case_value in self.cases.items()},
        )


@dataclass(frozen=True)
class CalledPart:
    """A fold with a function that Python's own pickle cannot send to another process."""

    field: StateField
    combined: Callable[[Any, Any], Any]

    @property
    def fields(self) -> tuple[StateField, ...]:
        return (self.field,)

    def combine(self, row: State, patch: State) -> None:
        row[self.field.name] = self.combined(row.get(self.field.name), patch.get(self.field.name))


@dataclass(frozen=True, eq=False)
class Called:
    cases: Cases

    def kind(self) -> ColumnType:
        return one_kind(self.cases)

    def stored(self, name: str, ordering: Ordering) -> Stored:
        part = CalledPart(StateField(name, self.kind()), lambda ours, theirs: bool(ours or theirs))
        return Stored(part, {case: {name: case_value} for case, case_value in self.cases.items()})


class OtherPut(Event, type="thing.put"):
    """The same event, as another package declares it."""

    thing_id: str
    real: float | None


class KillsItsProcess(ToFiles):
    def write(self, rows: Iterator[pa.RecordBatch]) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return 0


def view(name: str, key: str = "thing_id", **columns: Column) -> TableView:
    return TableView(name, key, columns or {"puts": count(Put), "small": add({Put: "small", Taken: "small"})}, STORES)


STORES = (Postgres(),)
COUNTED = view("counted")
TEXTS = view("texts", text=last({Put: "text"}))
BY_OTHER_CLASS = view("by_other_class", real=last({OtherPut: "real"}))
SHORTER = view("shorter")
GROUPED = view("grouped", "group")
UNPICKLED = view("unpickled", flag=Called(read({Put: "flag"})))
AWAY = view("away")
KILLED = view("killed")
BREAKING = view("breaking", broken=Breaking(read({Put: "flag"})))
WHOLE = (COUNTED, TEXTS, BY_OTHER_CLASS, SHORTER)
VIEWS = (COUNTED, BREAKING, GROUPED, UNPICKLED, AWAY, KILLED, SHORTER, BY_OTHER_CLASS, TEXTS)


class AsOnACluster(SparkTasks):
    """Workers without this process's disk: what they folded stays with them until it is written."""

    on_one_disk = False


@contextmanager
def only(workers: Workers) -> Iterator[Workers]:
    yield workers


def changed(source: Source, **data: Any) -> Source:
    """An event of another thing, with other data; None: without the field."""
    document = json.loads(source.record)
    document["id"] = "thing/other/1"
    document["data"] = {name: each for name, each in (document["data"] | data).items() if each is not None}
    return replace(
        source, envelope=structs.replace(source.envelope, data=document["data"]), record=json.dumps(document)
    )


def of_a_put(sources: list[Source]) -> Source:
    return next(source for source in sources if source.envelope.type == "thing.put")


def ranges(deployed: Deployed) -> Ranges:
    return {
        str(partition): (0, deployed.log.end("events", partition)) for partition in range(deployed.settings.partitions)
    }


def rows_are_the_references(view: TableView, writer: ToFiles, sources: list[Source]) -> None:
    assert differences(states(view, writer.rows()), expected_states(view, sources)) == [], view.name


@pytest.mark.parametrize("kind", ["local", "cluster"])
def test_a_view_that_fails_is_named_and_the_others_have_their_rows(
    deployed: Deployed, tmp_path: Path, kind: str
) -> None:
    deployed.append(things(200))
    early, short = list(deployed.sources), ranges(deployed)
    one = of_a_put(things(50, seed=2))
    deployed.append([*things(200, seed=3), changed(one, group=None)])
    writers: dict[str, ToFiles] = {}
    for each in VIEWS:
        folder = tmp_path / each.name
        folder.mkdir()
        made = KillsItsProcess if each is KILLED else ToFiles
        writers[each.name] = made(folder, fails=each is AWAY)

    def spark() -> SparkWorkers:
        return AsOnACluster(session(), deployed.settings)

    def workers(_: int) -> AbstractContextManager[Workers]:
        return pool.opened(2) if kind == "local" else only(spark())

    def load(views: tuple[TableView, ...], spark: Callable[[], SparkWorkers] | None) -> dict[str, Any]:
        engine = FoldingEngine(deployed.settings, deployed.log, workers, spark)
        loads = [Load(each, short if each is SHORTER else ranges(deployed), [writers[each.name]]) for each in views]
        return dict(zip([each.name for each in views], engine.bulk_load(loads), strict=True))

    results = load(VIEWS, spark)
    for span in WHOLE:
        assert isinstance(results[span.name], BulkResult), results[span.name]
        rows_are_the_references(span, writers[span.name], early if span is SHORTER else deployed.sources)
    assert isinstance(results["unpickled"], BulkResult), "Spark takes what cannot be sent to local processes"
    assert isinstance(results["grouped"], PoisonEvent)
    assert len(writers["grouped"].rows()) > 0
    for name, why in {"away": "the store is away", "killed": "", "breaking": "a mistake of one's own"}.items():
        failed = results[name]
        assert isinstance(failed, BulkLoadFailed)
        assert name in str(failed)
        assert why in str(failed)

    if kind == "local":

        def no_spark() -> SparkWorkers:
            raise JavaError("no Java found")

        for starts, why in ((None, "use --engine spark"), (no_spark, "Spark does not start: no Java found")):
            without = load((UNPICKLED, COUNTED), starts)
            assert isinstance(without["counted"], BulkResult)
            assert isinstance(without["unpickled"], BulkLoadFailed)
            assert why in str(without["unpickled"])
