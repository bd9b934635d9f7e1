"""The engine on a real log: aborted transactions, gaps, tombstones, bad records, and a process that dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partialmethod
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import Row

from headwater.commands.declaring.registry import CommandRegistry
from headwater.eventlog.envelope import Position
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import DEAD_LETTERS, EVENTS, PATCHES
from headwater.projections.engines import EngineChoice, new_engine
from headwater.projections.errors import BulkLoadFailed, PoisonEvent
from headwater.projections.folding import tasks
from headwater.projections.generations.rebuild.engine import BulkResult, Load, Ranges
from headwater.projections.reading import reader
from headwater.projections.reading.compiled import compiled
from headwater.projections.reading.fold_records import ALWAYS, Part
from headwater.projections.reading.program import decoders
from headwater.projections.table.expressions import Source
from headwater.projections.table.view import TableView
from headwater.projections.testing.contracts import history as random_history
from tests.contracts.fold_views import FOLD_VIEWS
from tests.support import versioned
from tests.support.spark_histories import history
from tests.support.spark_rows import Patches, as_loaded, expected_patches, patches, session, states
from tests.support.states import differences, expected_states
from tests.support.table_views import table_views
from tests.support.waiting import eventually

DOMAINS = ("listings", "orders")
"""Those without captured tables."""
VIEWS = list(table_views(DOMAINS).values())
AGGREGATES = list(CommandRegistry.load(DOMAINS).aggregates.values())
HEARTBEAT = b'{"specversion":"1.0","type":"headwater.heartbeat"}'
BOUND_S = 600.0
BATCH = "1 minute"
"""A busy machine needs half a minute to plan a batch for so many views, and a shorter one would end without records."""
NOTHING = "not an event at all"
ENGINES = ("spark", "local")
"""That Spark writes the rows of a real log decides in `test_replay_under_traffic`."""


class Log:
    """Writes `events` as the handler does: in transactions, some of them aborted."""

    def __init__(self, settings: LogSettings) -> None:
        self.settings, self.topic = settings, settings.topic(EVENTS)
        self._producer = Producer({"bootstrap.servers": settings.bootstrap, "transactional.id": settings.environment})
        self._producer.init_transactions()

    def append(self, sources: list[Source], *, abort: bool = False) -> list[Source]:
        """Append in one transaction, and return the events as they stand in the log."""
        placed: list[Source] = []

        def note(source: Source) -> Callable[[Any, Any], None]:
            return lambda error, message: placed.append(
                replace(source, position=Position(message.partition(), message.offset()))
            )

        self._producer.begin_transaction()
        for each in sources:
            self._produce(
                each.envelope.id,
                each.record.encode(),
                each.position.partition,
                each.timestamp_ms,
                on_delivery=note(each),
            )
        self._producer.flush()
        if abort:
            self._producer.abort_transaction()
            return []
        self._producer.commit_transaction()
        self._wait_for(placed)
        return placed

    def append_raw(self, key: str, value: bytes | None, partition: int) -> None:
        before = self.ranges()[str(partition)][1]
        self._producer.begin_transaction()
        self._produce(key, value, partition, 1_767_323_045_678)
        self._producer.commit_transaction()
        self._wait_beyond({str(partition): before})

    def _produce(self, key: str, value: bytes | None, partition: int, timestamp_ms: int, **more: Any) -> None:
        self._producer.produce(self.topic, value, key, partition=partition, timestamp=timestamp_ms, **more)

    def _wait_for(self, placed: list[Source]) -> None:
        """Until readers of committed records see these: the markers of a commit are written after its answer."""
        self._wait_beyond({str(each.position.partition): each.position.offset for each in placed})

    def _wait_beyond(self, last: Mapping[str, int]) -> None:
        eventually(
            lambda: all(end > last.get(source, -1) for source, (_, end) in self.ranges().items()),
            "what was committed is seen",
            every_s=0.01,
        )

    def ranges(self) -> dict[str, tuple[int, int]]:
        with_ends = Reader(self.settings, EVENTS, self.settings.partitions)
        return {str(partition): (0, with_ends.end(partition)) for partition in range(self.settings.partitions)}


class Reader:
    """Reads a topic from its start, committed records only."""

    def __init__(self, settings: LogSettings, topic: str, partitions: int) -> None:
        self.topic = settings.topic(topic)
        self._consumer = Consumer({"bootstrap.servers": settings.bootstrap, "group.id": "none"})
        self._consumer.assign([TopicPartition(self.topic, partition, 0) for partition in range(partitions)])
        self.found: list[Row] = []
        """Rows of `topic, key, value, partition`, as the live query has them."""

    def end(self, partition: int) -> int:
        return int(self._consumer.get_watermark_offsets(TopicPartition(self.topic, partition), timeout=60)[1])

    def until(self, done: Callable[[list[Row]], bool], live: Live) -> None:
        deadline = time.monotonic() + BOUND_S
        while not done(self.found):
            assert time.monotonic() < deadline, (
                f"{self.topic}: {len(self.found)} records, and the right ones not among them:\n{live.said()}"
            )
            live.alive()
            for message in self._consumer.consume(500, 0.2):
                assert message.error() is None, message.error()
                key, value = ((text or b"").decode() for text in (message.key(), message.value()))
                self.found.append(Row(topic=self.topic, key=key, value=value, partition=message.partition()))


@dataclass(frozen=True)
class ToFiles:
    """Writes the rows of each Spark partition to a file of Arrow batches."""

    folder: Path
    fails: bool = False

    def write(self, rows: Iterator[pa.RecordBatch]) -> int:
        if self.fails:
            raise OSError("the store is away")
        batches = list(rows)
        if batches:
            path = self.folder / f"{os.getpid()}-{time.monotonic_ns()}.arrow"
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batches[0].schema) as file:
                for batch in batches:
                    file.write_batch(batch)
        return sum(batch.num_rows for batch in batches)

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for file in self.folder.glob("*.arrow"):
            with pa.memory_map(str(file)) as source:
                found += pa.ipc.open_file(source).read_all().to_pylist()
        return found


class Live:
    """The live query in a process of its own."""

    def __init__(self, settings: LogSettings, output: Path) -> None:
        self._settings, self.output = settings, output
        self.start()

    def start(self) -> None:
        script = f"""
import logging, pathlib
from headwater.eventlog.settings import LogSettings
from headwater.projections.registry import ViewRegistry
from headwater.projections.spark.live import SPARE_THREADS, checkpoint_directory, run_live
from headwater.projections.spark.session import SparkSettings, start_session
from headwater.projections.table.view import TableView
logging.basicConfig(level=logging.INFO)
settings = LogSettings(environment={self._settings.environment!r}, bootstrap={self._settings.bootstrap!r},
                       partitions={self._settings.partitions}, state=pathlib.Path({str(self._settings.state)!r}))
views = ViewRegistry.load([
    "listings", "tests.support.versioned", "tests.contracts.fold_views", "tests.contracts.exact_views"
]).of_kind(TableView)
session = start_session(SparkSettings(), name="live", threads=settings.partitions + SPARE_THREADS)
run_live(session, views, settings, checkpoint=checkpoint_directory(settings, views, "test"), batch={BATCH!r})
"""
        with self.output.open("ab") as sink:
            self.process = subprocess.Popen(
                [sys.executable, "-c", script], stdout=sink, stderr=sink, start_new_session=True
            )

    def alive(self) -> None:
        assert self.process.poll() is None, f"the live query died:\n{self.said()}"

    def said(self) -> str:
        """The end of its log."""
        return self.output.read_text()[-3000:]

    def kill(self) -> None:
        """As a machine that loses its power: Python and the JVM at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def load(
    log: Log, view: TableView, writer: ToFiles, ranges: Ranges | None = None, engine: str = "spark", **more: Any
) -> BulkResult:
    with closing(KafkaLog(log.settings)) as events:
        by = new_engine(log.settings, events, session, EngineChoice(engine))
        (result,) = by.bulk_load([Load(view, ranges or log.ranges(), [writer], **more)])
    if not isinstance(result, BulkResult):
        raise result
    return result


@pytest.fixture
def log(log_settings: LogSettings) -> Log:
    return Log(log_settings)


@pytest.fixture
def live(log_settings: LogSettings, tmp_path: Path) -> Iterator[Live]:
    running = Live(log_settings, tmp_path / "live.log")
    yield running
    if running.process.poll() is None:
        running.kill()


@pytest.mark.complete
@pytest.mark.parametrize("engine", ["spark", "local"])
def test_rows_of_every_view_are_the_references(log: Log, engine: str, tmp_path: Path) -> None:
    events = history(AGGREGATES, 3, 120, log.settings.partitions)
    sources = log.append(events[:60])
    log.append(events[60:70], abort=True)
    log.append_raw("heartbeat/1", HEARTBEAT, 1)
    log.append_raw("listing/gone/1", None, 0)
    sources += log.append(events[60:])
    sources += log.append(folded_events(log.settings.partitions))
    seen: list[tuple[int, int]] = []
    for view in (*VIEWS, FOLD_VIEWS["between_groups"], FOLD_VIEWS["items_and_moves"]):
        writer = ToFiles(tmp_path / view.name)
        writer.folder.mkdir()
        result = load(log, view, writer, engine=engine, on_progress=lambda done, total: seen.append((done, total)))
        expected = expected_states(view, sources)
        assert differences(states(view, writer.rows()), expected) == [], view.name
        assert (result.rows, result.skipped) == (len(expected), 0)
    total = sum(end for _, end in log.ranges().values())
    assert seen[0] == (0, total)
    assert seen[-1] == (total, total)
    half = {source: (0, end // 2) for source, (_, end) in log.ranges().items()}
    early = [source for source in sources if source.position.offset < half[str(source.position.partition)][1]]
    writer = ToFiles(tmp_path / "half")
    writer.folder.mkdir()
    load(log, VIEWS[0], writer, half, engine)
    assert differences(states(VIEWS[0], writer.rows()), expected_states(VIEWS[0], early)) == []


@pytest.mark.complete
@pytest.mark.parametrize("in_files", [True, False])
def test_rows_beyond_the_memory_of_a_task_pass_through_its_chunks(
    log: Log, in_files: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = log.append(history(AGGREGATES, 8, 400, log.settings.partitions))
    monkeypatch.setattr(tasks, "ROWS_IN_MEMORY", 1)
    monkeypatch.setattr(tasks, "GROUP_BYTES", 1_000)
    monkeypatch.setattr(KafkaLog, "batches", partialmethod(_singly, KafkaLog.batches))
    view = next(view for view in VIEWS if view.name == "city_market")  # few rows, which change often
    shares = list[tasks.Share]()
    for source, (start, end) in log.ranges().items():
        path = tmp_path / source if in_files else None
        part = Part(source, start, end)
        task = tasks.FoldTask(decoders([view]), [compiled(view)], log.settings, [part], ALWAYS, {}, 16, path)
        shares += tasks.fold(task, lambda _: None)
    expected = expected_states(view, sources)
    assert sum(len(share.chunks) for share in shares) > 2 * len(expected), "rows are in parts"
    writer, groups = ToFiles(tmp_path), tasks.groups(shares, 0, compiled(view), 2)
    assert len(groups) > 1
    rows = sum(tasks.write(compiled(view), [writer], group).rows for group in groups)
    assert rows == len(expected)
    assert differences(states(view, writer.rows()), expected) == []


def _singly(log: KafkaLog, batches: Callable[..., Iterator[Any]], *args: Any) -> Iterator[Any]:
    for messages in batches(log, *args):
        yield from ([message] for message in messages)


@pytest.mark.complete
@pytest.mark.parametrize("engine", ENGINES)
def test_a_tombstone_counts_at_once_and_what_came_after_it_stays(log: Log, engine: str, tmp_path: Path) -> None:
    view, events = VIEWS[0], history(AGGREGATES, 3, 240, log.settings.partitions)
    sources = log.append(events)
    log.append_raw("bad", b"{", 0)
    gone = [source for source in sources if source.envelope.type in view.plan.events][::2]
    for each in gone:
        log.append_raw(each.envelope.id, None, each.position.partition)
    log.append_raw("bad", None, 0)
    again = log.append(gone[:1])
    log.append_raw(gone[1].envelope.id, None, 1 - gone[1].position.partition)  # of no such key in that partition
    ends = {source: end for source, (_, end) in log.ranges().items()}
    erased = {(source.position.partition, source.envelope.id): ends[str(source.position.partition)] for source in gone}
    erased[gone[0].position.partition, gone[0].envelope.id] = again[0].position.offset - 1
    kept = reader.remaining([*sources, *again], erased)
    assert len(kept) == len(sources) - len(gone) + 1
    for number in range(2):  # the second one knows the tombstones before it folds
        writer = ToFiles(tmp_path / str(number))
        writer.folder.mkdir()
        load(log, view, writer, engine=engine)
        assert differences(states(view, writer.rows()), expected_states(view, kept)) == []


@pytest.mark.complete
@pytest.mark.parametrize("engine", ENGINES)
def test_a_replay_names_the_first_record_that_it_cannot_read_or_leaves_it_out(
    log: Log, engine: str, tmp_path: Path
) -> None:
    sources = log.append(history(AGGREGATES, 4, 20, log.settings.partitions))
    log.append_raw("bad", NOTHING.encode(), 0)
    log.append_raw("bad", b"{}", 0)
    at = max(source.position.offset for source in sources if source.position.partition == 0) + 2
    with pytest.raises(PoisonEvent, match=f"record 0:{at} .*malformed JSON.*1 more") as caught:
        load(log, VIEWS[0], ToFiles(tmp_path), engine=engine)
    assert caught.value.position == f"0:{at}"
    folder = tmp_path / "again"
    folder.mkdir()
    result = load(log, VIEWS[0], ToFiles(folder), engine=engine, skip_poison=True)
    assert result.skipped == 2
    assert differences(states(VIEWS[0], ToFiles(folder).rows()), expected_states(VIEWS[0], sources)) == []


@pytest.mark.complete
@pytest.mark.parametrize("engine", ENGINES)
def test_a_writer_that_fails_is_told_with_its_cause(log: Log, engine: str, tmp_path: Path) -> None:
    log.append(history(AGGREGATES, 5, 40, log.settings.partitions))
    with pytest.raises(BulkLoadFailed, match="the store is away"):
        load(log, VIEWS[0], ToFiles(tmp_path, fails=True), engine=engine)


@pytest.mark.complete
@pytest.mark.timeout(2400)
def test_live_patches_are_the_references_through_aborts_bad_records_and_a_kill(
    log: Log, live: Live, log_settings: LogSettings
) -> None:
    events = history(AGGREGATES, 6, 150, log.settings.partitions)
    views = [*VIEWS, versioned.weighed, *FOLD_VIEWS.values()]
    made = Reader(log_settings, PATCHES, log_settings.patch_partitions)

    def loaded(found: list[Row]) -> Patches:
        rows = [row for row in as_loaded(found, views, log_settings) if row.topic == made.topic]
        return patches((row.key, row.value) for row in rows)

    sources = log.append([*events[:50], *versioned.readable()])
    sources += log.append(versioned.unreadable())
    sources += log.append(folded_events(log.settings.partitions))
    log.append(events[50:60], abort=True)
    log.append_raw("bad", NOTHING.encode(), 1)
    log.append_raw("listing/gone/1", None, 0)
    log.append_raw("heartbeat/1", HEARTBEAT, 1)
    first = expected_patches(views, sources)
    made.until(lambda found: first.keys() <= loaded(found).keys(), live)
    live.kill()
    sources += log.append(events[50:100])
    live.start()
    sources += log.append(events[100:])
    expected = expected_patches(views, sources)
    made.until(lambda found: expected.keys() <= loaded(found).keys(), live)
    made.until(lambda found: [row.key for row in found].count("progress/1") >= log_settings.patch_partitions, live)
    assert differences(loaded(made.found), expected) == []

    letters = Reader(log_settings, DEAD_LETTERS, 1)
    later, without_version, misfit = versioned.REASONS
    reasons = {'not an event: malformed JSON, or no "specversion"', later, without_version}
    letters.until(lambda found: _reasons(found) == reasons, live)
    by_loaders = [row for row in as_loaded(made.found, views, log_settings) if row.topic == letters.topic]
    assert _reasons(by_loaders) == {misfit}


def _reasons(letters: list[Row]) -> set[str]:
    return {json.loads(row.value)["reason"] for row in letters}


def folded_events(partitions: int) -> list[Source]:
    """Events for every fold, `where` and `each`."""
    kinds = {event.type: event for view in FOLD_VIEWS.values() for event in view.plan.events.values()}
    return [
        replace(source, position=Position(source.position.partition % partitions, source.position.offset))
        for source in random_history(FOLD_VIEWS["lists_by_group"], list(kinds.values()), 7, length=60).sources
    ]
