"""Which generation serves the code of which version, through swaps of versions and back."""

from __future__ import annotations

import select
import time
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from headwater.commands.declaring.aggregate import Event
from headwater.eventlog.settings import LogSettings
from headwater.projections.errors import GenerationMissing, StoreUnavailable, ViewDeclarationError
from headwater.projections.generations.registry.registry import Generations, followed
from headwater.projections.generations.registry.state_files import FRESH_S, StatePlace
from headwater.projections.stores.declared import Postgres
from headwater.projections.table.folds import last
from headwater.projections.table.view import TableView
from tests.contracts.opened_stores import RealServer
from tests.contracts.view_histories import BY_GROUP
from tests.support.waiting import eventually


def measured(kind: type) -> TableView:
    """A view of an event with a field of this type."""

    class Measured(Event, type="thing.measured"):
        group: str
        n: kind  # type: ignore[valid-type]

    return TableView("measured", "group", {"n": last({Measured: "n"})}, (Postgres(),))


COUNTED, MEASURED = measured(int), measured(float)
V1, V2, V3 = (replace(BY_GROUP, version=version) for version in (1, 2, 3))


class Registry:
    """A registry, and what the code of each version finds in it."""

    def __init__(self, generations: Generations) -> None:
        self.generations = generations
        generations.prepare()

    def build(self, view: TableView, *, allow_older: bool = False) -> bool:
        made = self.generations.begin(view, {}, {}, {})
        return self.generations.swap(view.name, made.generation, allow_older=allow_older)

    @property
    def served(self) -> list[int | None]:
        """The generation that code of versions 1, 2 and 3 reads, then the current one."""
        found = [self.generations.serving([view]).get(BY_GROUP.name) for view in (V1, V2, V3)]
        return [
            generation.generation if generation else None
            for generation in (*found, self.generations.live().get(BY_GROUP.name))
        ]

    @property
    def states(self) -> list[str]:
        return [generation.state for generation in self.generations.of(BY_GROUP.name)]


@pytest.fixture
def registry(servers: dict[str, RealServer], settings: LogSettings) -> Registry:
    return Registry(Generations(servers["postgres"].settings.postgres, settings.environment))


def test_code_of_the_version_before_serves_on_until_the_next_version(registry: Registry) -> None:
    assert registry.served == [None, None, None, None]
    assert registry.build(V1)
    assert registry.served == [1, 1, 1, 1]
    assert registry.build(V2)
    assert registry.served == [1, 2, 2, 2]
    assert registry.build(V2)
    assert (registry.served, registry.states) == ([1, 3, 3, 3], ["live", "retired", "live"])
    assert not registry.build(V1), "a replay by old code takes nothing from the new"
    assert registry.served == [4, 3, 3, 3]
    assert registry.states == ["retired", "retired", "live", "live"]
    assert registry.build(V3)
    assert registry.served == [None, 3, 5, 5]
    assert registry.states == ["retired", "retired", "live", "retired", "live"]


def test_the_way_back_to_an_earlier_version_leads_the_plain_names_there(registry: Registry) -> None:
    registry.build(V1)
    registry.build(V2)
    assert registry.generations.swap(BY_GROUP.name, 1, allow_older=True)
    assert registry.served == [1, 2, 2, 1]
    assert registry.build(V2)
    assert registry.served == [1, 3, 3, 3]


def test_what_is_dropped_or_withdrawn_serves_nobody(registry: Registry) -> None:
    registry.build(V1)
    registry.build(V2)
    generations = registry.generations
    generations.retire(BY_GROUP.name, [1, 2])
    assert (registry.served, registry.states) == ([None, 2, 2, 2], ["retired", "live"]), "the current one stays"
    generations.forget(BY_GROUP.name, 1)
    generations.forget(BY_GROUP.name, 2)
    assert registry.states == ["live"]
    generations.withdraw(BY_GROUP.name)
    assert (registry.served, registry.states) == ([None] * 4, ["retired"])
    with pytest.raises(GenerationMissing):
        generations.swap(BY_GROUP.name, 7)


def test_a_pause_between_replays_belongs_to_the_live_generation_of_this_version(registry: Registry) -> None:
    registry.build(V1)
    registry.build(V2)
    registry.generations.note_replays(V2, 3, 60.0)
    first, second = registry.generations.of(BY_GROUP.name)
    assert (first.replays, first.next_replay) == (None, None)
    assert second.replays == 3
    assert second.next_replay is not None
    assert second.next_replay > second.read_at > second.created_at
    registry.build(V2)
    assert registry.generations.live()[BY_GROUP.name].next_replay is None


def test_read_sides_say_where_they_keep_state(registry: Registry) -> None:
    generations = registry.generations
    assert generations.state_places() == []
    for place in (StatePlace("one", "a:/state"), StatePlace("two", "b:/state"), StatePlace("one", "c:/moved")):
        generations.note_state_place(place)
    found = generations.state_places()
    assert [(patch.id, patch.place) for patch in found] == [("one", "c:/moved"), ("two", "b:/state")]
    assert all(0 <= each.age_s < FRESH_S for each in found)


def test_loaders_follow_what_is_live_of_every_version(registry: Registry) -> None:
    with followed(registry.generations) as live:
        registry.build(V1)
        registry.build(V2)
        assert [(generation.tag, generation.generation) for generation in live()] == [
            ("by_group@1", 1),
            ("by_group@2", 2),
        ]


def test_whoever_reads_the_registry_in_a_transaction_stops_no_start_and_no_swap(
    registry: Registry, servers: dict[str, RealServer], settings: LogSettings
) -> None:
    registry.build(V1)
    query = sql.SQL("SELECT * FROM {}").format(sql.Identifier(settings.environment, "generations"))
    with psycopg.connect(servers["postgres"].settings.postgres) as reader:
        reader.execute(query).fetchall()
        registry.generations.prepare()
        registry.build(V2)


def test_a_swap_needs_the_lock_of_its_rebuild(registry: Registry, servers: dict[str, RealServer]) -> None:
    made = registry.generations.begin(V1, {}, {}, {}).generation
    with registry.generations.rebuilding(BY_GROUP.name) as lock:
        with lock.transaction() as connection:
            holder = connection.info.backend_pid
        with psycopg.connect(servers["postgres"].settings.postgres, autocommit=True) as operator:
            ended = operator.execute("SELECT pg_terminate_backend(%s, 240000)", [holder]).fetchall()
            assert ended == [(True,)], "and its connection has ended, too"
        with pytest.raises(StoreUnavailable, match="lock on rebuilding"):
            registry.generations.swap(BY_GROUP.name, made, lock=lock)
    assert registry.generations.live() == {}


def test_the_connection_that_holds_a_rebuild_lock_may_be_idle_for_hours(
    servers: dict[str, RealServer], settings: LogSettings
) -> None:
    url = make_conninfo(servers["postgres"].settings.postgres, options="-c idle_session_timeout=1s")
    generations = Registry(Generations(url, settings.environment)).generations
    made = generations.begin(V1, {}, {}, {}).generation
    with generations.rebuilding(BY_GROUP.name) as lock, psycopg.connect(url, autocommit=True) as other:
        eventually(lambda: is_ended(other), "the server ends idle sessions")
        assert generations.swap(BY_GROUP.name, made, lock=lock)


def test_the_next_number_is_above_those_that_this_registry_does_not_know(registry: Registry) -> None:
    generations = registry.generations
    numbers = [generations.begin(V1, {}, {}, {}, above=above).generation for above in (7, 3, 12, 0)]
    assert numbers == [8, 9, 13, 14]


def is_ended(connection: psycopg.Connection[Any]) -> bool:
    """Whether the server has ended a connection that is idle."""
    return bool(select.select([connection.fileno()], [], [], 0.0)[0])


def test_until_when_a_generation_was_kept_up_is_known_by_store(registry: Registry) -> None:
    registry.build(V1)
    assert registry.generations.of(BY_GROUP.name)[0].kept == {}
    began_s = time.time()
    for store, age_s in (("postgres", 0.0), ("valkey", 7200.5), ("postgres", 60.0)):
        registry.generations.note_kept(BY_GROUP.name, 1, store, age_s)
    took_s = time.time() - began_s
    registry.build(V1)
    retired, live = registry.generations.of(BY_GROUP.name)
    assert live.kept == {}
    assert retired.kept == {
        "postgres": pytest.approx(began_s - 60.0, abs=took_s + 1.0),
        "valkey": pytest.approx(began_s - 7200.5, abs=took_s + 1.0),
    }


def test_a_column_whose_type_changes_needs_a_new_version(registry: Registry) -> None:
    registry.build(COUNTED)
    generations = registry.generations
    assert MEASURED.fingerprint == COUNTED.fingerprint, "the declaration names fields, not their types"
    with pytest.raises(ViewDeclarationError, match=r"raise the version\n  - n integer\n  \+ n float$"):
        generations.of_this_code(MEASURED)
    assert generations.of_this_code(COUNTED) is not None
    later = generations.of_this_code(replace(MEASURED, version=2))
    assert later is not None
    assert later.version == 1


def test_a_copy_of_a_topic_takes_its_place_and_nothing_else_changes(registry: Registry) -> None:
    generations = registry.generations
    built = [{"patches": "a", "events": "b"}, {"patches": "b", "events": "other"}]
    made = [generations.begin(V1, {}, {}, ids).generation for ids in built]
    for _ in range(2):
        generations.follow_copy("events", "b", "copy")
    found = {generation.generation: generation.topics for generation in generations.of(V1.name)}
    assert found[made[0]] == {"patches": "a", "events": "copy"}
    assert found[made[1]] == built[1]
    assert generations.connections("a program that does not run") == 0


def test_the_progress_of_a_rebuild_is_known_to_others_while_its_lock_is_held(registry: Registry) -> None:
    generations, began_s = registry.generations, time.time()
    generations.note_rebuild("killed", "bulk", 1, 2)
    with generations.rebuilding("counted"):
        generations.note_rebuild("counted", "bulk", 7, 100)
        (first,) = generations.rebuilds()
        assert (first.view, first.phase, first.done, first.total) == ("counted", "bulk", 7, 100)
        assert abs(first.changed_s - began_s) < 600
        generations.note_rebuild("counted", "index", 0, 0)
        (second,) = generations.rebuilds()
        assert (second.phase, second.done, second.total) == ("index", 0, 0)
        assert second.changed_s > first.changed_s
        generations.forget_rebuild("counted")
        assert generations.rebuilds() == []
        generations.note_rebuild("counted", "swap", 0, 0)
    assert generations.rebuilds() == []


def test_what_refuses_the_progress_of_a_rebuild_is_unavailable_and_no_other_error(registry: Registry) -> None:
    with registry.generations._connect() as connection:
        connection.execute(registry.generations._sql("DROP TABLE {schema}._rebuilds"))
    with pytest.raises(StoreUnavailable, match="_rebuilds"):
        registry.generations.note_rebuild("counted", "bulk", 1, 2)
    with pytest.raises(StoreUnavailable, match="_rebuilds"):
        registry.generations.forget_rebuild("counted")
    registry.generations.prepare()
    registry.generations.note_rebuild("counted", "bulk", 1, 2)
