"""A standby of a captured PostgreSQL that is promoted: what it lacks is named, and what it has is not."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

from headwater.compose.parts import postgres
from headwater.compose.ports import free_ports
from headwater.compose.settings import StackSettings
from headwater.compose.stack import Stack
from headwater.compose.state import own_folder
from headwater.eventlog.capturing import Captured, Source
from headwater.eventlog.capturing.control_topics import ControlTopics
from headwater.eventlog.capturing.database import Database
from headwater.eventlog.capturing.kafka_connect import KafkaConnect
from headwater.eventlog.capturing.naming import SourceNames
from headwater.eventlog.capturing.operated import Operated
from headwater.eventlog.capturing.postgres.database import PostgresAddress
from headwater.eventlog.capturing.postgres.engine import PostgresDatabase
from headwater.eventlog.capturing.settings import SourceSettings
from headwater.eventlog.settings import LogSettings
from tests.support.waiting import BOUND_S, eventually

pytestmark = pytest.mark.servers


class Person(Captured, table="public.people", key="id"):
    id: int


class Note(Captured, table="public.notes", key="id"):
    id: int
    text: str | None


CRM = Source(name="crm", tables=(Person,))
NOTES = Source(name="crm", tables=(Note,))
NAMES = SourceNames.of(CRM, "test")
LOG = LogSettings(environment="test")


@dataclass
class Capturing:
    """A source of which one server or the other is captured, with its notes in memory. place: of its connector."""

    url: str
    place: int = 0
    notes: list[dict[str, Any]] = field(default_factory=list)

    def send(self, _key: str, document: Mapping[str, Any]) -> None:
        self.notes.append(dict(document))

    def recent(self, *_: object) -> list[bytes]:
        return [json.dumps(note).encode() for note in self.notes]

    @contextmanager
    def open(self, source: Source = CRM) -> Iterator[Database]:
        address = PostgresAddress.read("HEADWATER_DATABASE", self.url)
        with PostgresDatabase.open(source, NAMES, address, lambda: {"lsn": self.place}) as database:
            yield database

    def skipped(self) -> str | None:
        with self.open() as database:
            return self.operated().why_skipped(database)

    def operated(self) -> Operated:
        address = PostgresAddress.read("HEADWATER_DATABASE", self.url)
        settings = SourceSettings(LOG, "http://connect", "", address, address)
        return Operated(CRM, settings, KafkaConnect(settings.connect), print)

    def sql(self, statement: str) -> Any:
        with psycopg.connect(self.url, autocommit=True) as connection:
            found = connection.execute(statement)
            return found.fetchall() if found.description else None

    def end(self) -> int:
        ((lsn,),) = self.sql("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")
        return int(lsn)


@dataclass(frozen=True)
class Pair:
    primary: str
    standby: str


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """A primary, and a standby that reads its replication slot `standby_1`."""
    with own_folder() as folder:
        first, second = (StackSettings(folder / name, free_ports()) for name in ("primary", "standby"))
        with Stack(first, ("postgres",)) as primary:
            _copy(primary.endpoints.postgres, second)
            with Stack(second, ("postgres",)) as standby:
                yield Pair(primary.endpoints.postgres, standby.endpoints.postgres)


def _copy(primary: str, settings: StackSettings) -> None:
    """Let a server that is to be started be a standby."""
    user = postgres.server_user()
    programs, data = postgres.folders(settings, user)
    data.mkdir(mode=0o700)
    if user is not None:
        os.chown(data, *user)
    copy = [str(programs / "pg_basebackup"), "-d", primary, "-D", str(data)]
    postgres._run([*copy, "-R", "-C", "-S", "standby_1", "-c", "fast", "--no-sync"], user)


@pytest.mark.complete
def test_standbys_that_are_not_waited_for_are_named(pair: Pair) -> None:
    source = Capturing(pair.primary)

    def warnings() -> list[str]:
        with source.open() as database:
            before, server, found = database.warnings(), database.identity(), database.warnings()
            if before != found:  # a setting has come into force in between
                return warnings()
            assert server is not None
            assert server.is_guarded == (not any("may lack changes" in each for each in found))
            return found

    (warning,) = warnings()
    assert warning.startswith("a standby that reads replication slot standby_1 may lack changes that are captured")
    source.sql(warning.partition("run ")[2].partition(" as a superuser")[0])
    source.sql("SELECT pg_reload_conf()")
    eventually(lambda: warnings() == [], "it is waited for")
    source.sql("ALTER SYSTEM SET synchronized_standby_slots = 'standby_1, standby_2'")
    source.sql("SELECT pg_reload_conf()")
    missing = "synchronized_standby_slots has standby_2, which does not exist, so that changes wait"
    eventually(lambda: [warning.startswith(missing) for warning in warnings()] == [True], "it is named alone")
    source.sql("ALTER SYSTEM RESET synchronized_standby_slots")
    source.sql("SELECT pg_reload_conf()")
    eventually(lambda: "may lack changes" in warnings()[0], "it is reset")


@pytest.mark.complete
def test_tables_whose_rows_may_be_read_before_their_commit_is_visible_are_named(pair: Pair) -> None:
    source = Capturing(pair.primary)
    source.sql("CREATE TABLE notes (id int PRIMARY KEY, text text, other text)")

    def named() -> list[str]:
        with source.open(NOTES) as database:
            return [warning for warning in database.warnings() if "before it is visible" in warning]

    def let_commits_wait_for(standbys: str) -> None:
        for setting in ("synchronous_commit = 'local'", f"synchronous_standby_names = '{standbys}'"):
            source.sql(f"ALTER SYSTEM SET {setting}")
        source.sql("SELECT pg_reload_conf()")

    assert named() == [], "no commit waits"
    let_commits_wait_for("standby_1")
    eventually(lambda: len(named()) == 1, "the table is named")
    (warning,) = named()
    assert '"public.notes"' in warning
    source.sql("ALTER SYSTEM SET synchronized_standby_slots = 'standby_1'")
    source.sql("SELECT pg_reload_conf()")
    eventually(lambda: named() == [], "the connector waits for the standby, too")
    source.sql("ALTER SYSTEM RESET synchronized_standby_slots")
    source.sql("SELECT pg_reload_conf()")
    eventually(lambda: named() == [warning], "it does not any more")
    source.sql("ALTER TABLE notes ALTER text SET STORAGE PLAIN")
    assert named() == [], "only a column that is not captured may be long"
    source.sql("ALTER TABLE notes ALTER text SET STORAGE EXTENDED")
    source.sql(warning.partition("; run ")[2])
    assert named() == [], "the log has the old rows"
    source.sql("ALTER TABLE notes REPLICA IDENTITY DEFAULT")
    let_commits_wait_for("")
    eventually(lambda: named() == [], "no commit waits any more")


def test_a_promoted_standby_that_may_lack_captured_changes_is_named(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Capturing(pair.primary)
    monkeypatch.setattr(ControlTopics, "_send", source.send)
    monkeypatch.setattr(ControlTopics, "_recent", source.recent)
    source.sql("CREATE TABLE people (id int PRIMARY KEY)")
    before = source.end()
    with source.open() as database:
        source.operated().note_server(database)
    promoted = Capturing(pair.standby)
    eventually(lambda: promoted.sql("SELECT to_regclass('people')") != [(None,)], "it has the table")
    promoted.sql("SELECT pg_wal_replay_pause()")
    source.sql("INSERT INTO people SELECT generate_series(1, 1000)")
    after = source.end() + 10_000_000
    assert source.skipped() is None
    promoted.sql(f"SELECT pg_promote(true, {BOUND_S:.0f})")
    promoted.sql("CREATE TABLE filler AS SELECT repeat(n::text, 100) FROM generate_series(1, 100000) n")
    assert promoted.end() > after, "the log has passed the place"
    source.url, noted = pair.standby, list(source.notes)

    source.place = before
    assert source.skipped() is None, "it has all that was captured"
    source.place = promoted.end()
    assert source.skipped() is None, "the new timeline is the one that is captured now"

    source.notes[:], source.place = noted, after
    why = source.skipped()
    assert why is not None
    assert why.startswith("its log has left timeline 1, which was captured, at 0/")
    source.place = promoted.end()
    assert source.skipped() == why, "it is remembered"
