"""A deployment under test: its log, its live query played by the reference, its loaders, and the real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import orjson
import pytest
from confluent_kafka import KafkaError, Message, Producer
from msgspec import structs

from headwater.commands.handling.command_task import heartbeat
from headwater.compose.settings import StackSettings
from headwater.eventlog.envelope import Position, encode, partition_of, timestamp_ms
from headwater.eventlog.kafka import admin
from headwater.eventlog.kafka import log as kafka
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import EVENTS, PATCHES
from headwater.projections.engines import EngineChoice, SparkQueries, new_engine
from headwater.projections.generations.rebuild.rebuilder import Rebuilder
from headwater.projections.generations.registry.registry import Generations
from headwater.projections.kinds import table_view
from headwater.projections.loading.loader import Loader
from headwater.projections.reading.reader import fold, lift, remaining, states
from headwater.projections.registry import ViewRegistry
from headwater.projections.service import Service
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.backend import without_empty
from headwater.projections.stores.names import patch_key
from headwater.projections.stores.open import open_reader
from headwater.projections.stores.store import Target
from headwater.projections.table.expressions import Source
from headwater.projections.table.view import TableView
from tests.contracts.opened_stores import OnElasticsearch, OnPostgres, OnValkey, Server
from tests.support.background import running
from tests.support.ordered_producer import check_stored, ordered_producer, stored
from tests.support.processes import SHOWS_STACKS, ended, ends_of
from tests.support.spark_rows import session
from tests.support.states import differences
from tests.support.traffic import repeated
from tests.support.waiting import Latest, eventually

ROOT = Path(__file__).parents[3]
BOUND_S = 300.0
START_S = 900.0
"""Several JVMs start one after another, on a machine that may have other work."""


FEW = 5
"""Events of each step of traffic."""


@dataclass
class Told:
    """How a command ended: its exit code, its document, and its complaint."""

    code: int
    document: Any
    complaint: str


Answer = TypeVar("Answer")
Command = Callable[..., Told]
"""Runs `replay` with these words."""


@dataclass
class Deployed:
    """One environment on the servers. sources: the events appended so far, as they stand in the log.

    streams: the version of each stream, and the time of its last event.
    """

    settings: LogSettings
    stores: StoreSettings
    servers: Mapping[str, Server]
    log: KafkaLog
    producer: Producer
    sources: list[Source] = field(default_factory=list)
    streams: dict[str, tuple[int, datetime]] = field(default_factory=dict)
    emitted: int = 0

    def rebuilder(self, choice: EngineChoice = EngineChoice.LOCAL) -> Rebuilder:
        """Rebuilds its views."""
        engine = new_engine(self.settings, self.log, session, choice)
        queries = SparkQueries(self.settings, session)
        return Rebuilder(self.settings, self.stores, self.log, self.generations, engine, queries)

    @property
    def generations(self) -> Generations:
        return Generations(self.stores.postgres, self.settings.environment)

    @property
    def variables(self) -> dict[str, str]:
        """What points Headwater's processes at it."""
        return {
            "HEADWATER_ENVIRONMENT": self.settings.environment,
            "HEADWATER_KAFKA": self.settings.bootstrap,
            "HEADWATER_POSTGRES": self.stores.postgres,
            "HEADWATER_ELASTICSEARCH": self.stores.elasticsearch,
            "HEADWATER_VALKEY": self.stores.valkey,
            "HEADWATER_STATE": str(self.settings.state),
            "HEADWATER_PARTITIONS": str(self.settings.partitions),
            "HEADWATER_PATCH_PARTITIONS": str(self.settings.patch_partitions),
            "HEADWATER_MODULES": ",".join(self.settings.modules),
            "HEADWATER_LOG_LEVEL": "INFO",
        }

    def append(self, events: Sequence[Source]) -> None:
        """Append events, and a heartbeat to every partition."""
        placed: list[Source] = []

        def note(source: Source) -> Callable[[Any, Any], None]:
            def stored_at(error: KafkaError | None, message: Message) -> None:
                check_stored(error, message)
                placed.append(replace(source, position=Position(message.partition() or 0, message.offset() or 0)))

            return stored_at

        topic = self.settings.topic(EVENTS)
        for each in map(self._in_order, events):
            partition = partition_of(each.envelope.stream, self.settings.partitions)
            self.producer.produce(
                topic, each.record, each.envelope.id, partition, note(each), timestamp=each.timestamp_ms
            )
        self.flush()
        assert len(placed) == len(events)
        self.sources += placed
        self.beat()

    def _in_order(self, source: Source) -> Source:
        """The event as an owner decides it: the next version of its stream, and not earlier than the one before it.

        Histories with other seeds have the same streams, and the times of each are random.
        """
        what = source.envelope
        version, time = self.streams.get(what.stream, (0, what.time))
        version, time = version + 1, max(time, what.time)
        self.streams[what.stream] = version, time
        if (what.sequence, what.time) == (version, time) or source.record != encode(what).decode():
            return source
        what = structs.replace(what, id=f"{what.stream}/{version}", sequence=version, time=time)
        return replace(source, envelope=what, timestamp_ms=timestamp_ms(time), record=encode(what).decode())

    def flush(self) -> None:
        """Wait until all that `producer` got is in the log."""
        stored(self.producer)

    def append_raw(self, key: str, value: bytes | None, partition: int) -> None:
        """Append a record that may be no event."""
        self.producer.produce(self.settings.topic(EVENTS), value, key, partition)
        self.flush()

    def erase(self, source: Source) -> None:
        """Append the tombstone of an event."""
        self.append_raw(source.envelope.id, None, source.position.partition)
        erased = {(source.position.partition, source.envelope.id): self.log.end(EVENTS, source.position.partition)}
        self.emitted = len(remaining(self.sources[: self.emitted], erased))
        self.sources = remaining(self.sources, erased)

    def beat(self) -> None:
        """What each partition's handler does every second."""
        for partition in range(self.settings.partitions):
            beat = heartbeat(partition, datetime.now(UTC))
            self.producer.produce(
                self.settings.topic(EVENTS), beat.value, beat.key, partition, timestamp=beat.timestamp_ms
            )
        self.flush()

    def emit(self, views: Sequence[TableView]) -> None:
        """Make the patches of what was appended since the last call, as the live query does, with its progress."""
        for source in self.sources[self.emitted :]:
            for view in views:
                for patch in lift(view, source):
                    key, (offset, number) = patch_key(view.tag, patch.key), patch.place
                    place = {"p": int(patch.source), "o": offset, "i": number}
                    value = {**place, "t": source.timestamp_ms, "c": patch.fields}
                    self._patch(key, value, partition_of(key, self.settings.patch_partitions))
        self.emitted = len(self.sources)
        for partition in range(self.settings.partitions):
            progress = {
                "p": partition,
                "o": self.log.end(EVENTS, partition) - 1,
                "t": 0,
                "v": [view.tag for view in views],
            }
            for each in range(self.settings.patch_partitions):
                self._patch(f"progress/{partition}", progress, each)
        self.flush()

    @contextmanager
    def heartbeats(self, views: Sequence[TableView]) -> Iterator[None]:
        """Heartbeats and their progress until the end of the block: they confirm that nothing else came."""

        def beat() -> None:
            self.beat()
            self.emit(views)

        with repeated(beat, 0.5):
            yield

    @contextmanager
    def traffic(self, events: Iterator[Source], views: Sequence[TableView] = ()) -> Iterator[None]:
        """A few events at a time until the end of the block; all of them are in the log then.

        views: those of which the patches are made, too.
        """

        def append() -> None:
            self.append(list(islice(events, FEW)))
            if views:
                self.emit(views)

        with repeated(append, 0.1):
            yield

    def _patch(self, key: str, value: dict[str, Any], partition: int) -> None:
        self.producer.produce(self.settings.topic(PATCHES), orjson.dumps(value), key, partition)

    @contextmanager
    def served(self, views: Sequence[TableView]) -> Iterator[None]:
        """Loaders of every store over the live generations of `views`, as `headwater projections load` runs them."""

        def targets(store: str) -> list[Target]:
            there = [view for view in views if view.store(store)]
            return Service(self.settings, self.stores, ViewRegistry([])).targets(there)

        loaders = [
            Loader(server.open(), partial(targets, name), self.settings) for name, server in self.servers.items()
        ]
        with running(*(loader.run for loader in loaders)):
            yield

    def become(self, read: Callable[[], Mapping[str, Any]], expected: Mapping[str, Any], what: str) -> None:
        """Wait until these rows can be read; the error says which differ."""
        told = list[str]()

        def are_equal() -> bool:
            told[:] = differences(read(), expected)
            return told == []

        self.eventually(are_equal, Latest(partial("{}: {}".format, what, told)))

    def rows_become_the_references(self, view: TableView, timeout_s: float = BOUND_S) -> None:
        """Wait until every store shows, under the alias, what the reference folds of all events."""
        expected, told = fold(view, self.sources), list[str]()

        def are_there(server: Server) -> bool:
            told[:] = differences(server.rows(view), expected)
            return told == []

        for name, server in self.servers.items():
            missing = Latest(partial("{} in {}: {}".format, view.name, name, told))
            self.eventually(partial(are_there, server), missing, timeout_s)

    def generation_becomes_the_references(self, target: Target, timeout_s: float = BOUND_S) -> None:
        """Wait until every store has, in one generation, what the reference folds of all events."""
        expected = {key: without_empty(row) for key, row in states(table_view(target.view), self.sources).items()}
        told = list[str]()

        def is_in(name: str) -> bool:
            rows = open_reader(name, self.stores).rows(target)
            told[:] = differences({key: without_empty(row) for key, row in rows}, expected)
            return told == []

        for name in self.servers:
            missing = Latest(partial("{} g{} in {}: {}".format, target.view.tag, target.generation, name, told))
            eventually(partial(is_in, name), missing, timeout_s)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a part of Headwater, or a module of tests, with these words; its output goes to the state directory."""
        module = words[0] if words[0].startswith("tests.") else f"headwater.{words[0]}"
        with (self.settings.state / f"{words[0]}.log").open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", module, *words[1:]],
                cwd=ROOT,
                env=os.environ | self.variables | SHOWS_STACKS,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def ended(self, process: subprocess.Popen[bytes], within_s: float = BOUND_S) -> int:
        """The exit code of a process that `start` has started, once it has ended."""
        return ended(process, self.settings.state, within_s)

    def output(self, module: str) -> str:
        return (self.settings.state / f"{module}.log").read_text()

    def eventually(
        self, condition: Callable[[], Answer], what: str | Latest, timeout_s: float = BOUND_S, *, every_s: float = 0.05
    ) -> Answer:
        """What only its processes bring: see `eventually`. The error shows the ends of their logs."""
        return eventually(condition, Latest(lambda: f"{what}:\n{self.ends_of_logs()}"), timeout_s, every_s=every_s)

    def ends_of_logs(self) -> str:
        """The last lines of each process, and of each that it supervises."""
        return ends_of(self.settings.state)

    def replay(self, *words: str) -> tuple[int, Any, str]:
        """Run `replay` with these words and `--json`: its exit code, its document (None: none), and its complaint."""
        done = subprocess.run(
            [sys.executable, "-m", "headwater.replay", *words, "--json"],
            cwd=ROOT,
            env=os.environ | self.variables,
            capture_output=True,
            text=True,
            timeout=START_S,
        )
        return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


@contextmanager
def deployment(stack: StackSettings, state: Path, modules: tuple[str, ...]) -> Iterator[Deployed]:
    """A fresh one on the running servers, removed at the end of the block.

    state: a folder of its own. modules: those of its views.
    """
    at, name = stack.endpoints, f"t_{uuid.uuid4().hex[:12]}"
    settings = LogSettings(name, at.kafka, 2, 2, state=state, modules=modules)
    stores = StoreSettings(name, at.postgres, at.elasticsearch, at.valkey, settings.patch_partitions, log=settings)
    with pytest.MonkeyPatch.context() as patched:
        # nobody waits for an answer to what is appended and read here: a busy broker may take its time
        patched.setattr(kafka, "SUBMIT_TIMEOUT_MS", int(BOUND_S * 1000))
        patched.setattr(kafka, "TIMEOUT_S", BOUND_S)
        patched.setattr(kafka, "FAILOVER_S", BOUND_S)
        admin.prepare(settings)
        log = KafkaLog(settings)
        producer = ordered_producer(settings.bootstrap, **{"linger.ms": 5})
        with OnPostgres(stores) as postgres, OnElasticsearch(stores) as elasticsearch, OnValkey(stores) as valkey:
            servers = {"postgres": postgres, "elasticsearch": elasticsearch, "valkey": valkey}
            yield Deployed(settings, stores, servers, log, producer)
        log.close()
        admin.remove(settings)
