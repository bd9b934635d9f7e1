"""How the read side starts: Spark beside the replay, the live query and the loaders after it, and no end but a stop."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.handling.recorded_versions import settle_versions
from headwater.eventlog import topics
from headwater.eventlog.envelope import Envelope, encode
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Entry
from headwater.eventlog.programs.backoff import RETRY_FOREVER
from headwater.eventlog.settings import LogSettings
from headwater.projections import queries, service
from headwater.projections.errors import StoreUnavailable, ViewDeclarationError
from headwater.projections.generations.registry.generation import Generation, served_by
from headwater.projections.generations.registry.registry import Generations
from headwater.projections.generations.registry.state_files import StatePlace, known_id
from headwater.projections.queries import run_live_query
from headwater.projections.registry import ViewRegistry
from headwater.projections.running_parts import EVERYTHING, LIVE, REPLAYING, STREAMS, RunningParts, ready_file
from headwater.projections.service import Service
from headwater.projections.settings import StoreSettings
from headwater.projections.spark.stream_queries.checkpoint import Checkpoint
from headwater.projections.stores import open as store_open
from headwater.projections.stores.memory import Memory, MemoryStore
from headwater.projections.stores.store import Ledger, Target, ViewStore
from headwater.projections.supervise import supervise
from headwater.projections.supervision.process import ProcessSpec
from headwater.projections.view import View
from tests.contracts.view_histories import BY_GROUP, BY_THING
from tests.support.background import running
from tests.support.checkpoints import begin_batch
from tests.support.observed import gate_view
from tests.support.waiting import eventually

WAITS = 'while [ -e "$HEADWATER_LIVE_HELD_BY" ]; do sleep 0.02; done'
DIES_AT_FIRST = "[ $(wc -l < started) -gt 4 ] || exit 1"
GATES = gate_view()
RUNS = "trap 'exit 0' TERM; while :; do sleep 0.05; done"


@pytest.fixture(autouse=True)
def log(monkeypatch: pytest.MonkeyPatch) -> MemoryLog:
    made = MemoryLog()
    monkeypatch.setattr(service, "KafkaLog", lambda _: made)
    return made


@dataclass
class FakeUpkeep:
    """A first look, and a replay of other views, that take until they are let go."""

    begun: threading.Event = field(default_factory=threading.Event)
    let_go: threading.Event = field(default_factory=threading.Event)
    others_begun: threading.Event = field(default_factory=threading.Event)
    others_let_go: threading.Event = field(default_factory=threading.Event)
    parts: RunningParts | None = None
    replays_backlog = False
    is_replaying = False

    @contextmanager
    def of(self, parts: RunningParts) -> Iterator[FakeUpkeep]:
        self.parts = parts
        yield self

    def try_to_look(self, *, only_folded: bool) -> None:
        assert only_folded
        self.begun.set()
        self.let_go.wait(240)

    def try_to_replay_others(self) -> None:
        self.others_begun.set()
        self.others_let_go.wait(240)

    def run(self, stop: threading.Event) -> None:
        stop.wait()


@pytest.fixture
def upkeep(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeUpkeep:
    """That of a read side whose parts are small programs, and which has nothing to build."""
    made = FakeUpkeep()
    ready = ready_file(LogSettings(state=tmp_path), LIVE)

    def part(_: Service, name: str, __: tuple[str, ...]) -> ProcessSpec:
        live = f"echo live >> started; {DIES_AT_FIRST}; {WAITS}; touch {ready}; {RUNS}"
        script = live if name == LIVE else f"touch {name}; {RUNS}"
        return ProcessSpec(
            name=name, argv=("/bin/sh", "-c", script), cwd=tmp_path, log=tmp_path / "log", probe=lambda: None
        )

    monkeypatch.setattr(
        "headwater.projections.supervise.RETRY_FOREVER", replace(RETRY_FOREVER, first_s=0.01, max_s=0.02)
    )
    monkeypatch.setattr(Service, "prepare", lambda _: "cluster")
    monkeypatch.setattr(Generations, "prepare", lambda _: None)  # a unit test needs no server
    monkeypatch.setattr(Generations, "refused", lambda *_: {})
    monkeypatch.setattr(Service, "build_missing", lambda _, only_folded: [])
    monkeypatch.setattr(Service, "upkeep", lambda _, parts, __: made.of(parts))
    monkeypatch.setattr(Service, "add_to_stores", lambda *_: set())
    monkeypatch.setattr("headwater.projections.supervise._part", part)
    return made


@pytest.fixture
def read_side(tmp_path: Path) -> Service:
    return Service(LogSettings(state=tmp_path), StoreSettings(), ViewRegistry([("here", BY_GROUP)]))


def test_the_live_query_starts_beside_the_replay_and_is_let_go_after_it(
    read_side: Service, upkeep: FakeUpkeep, tmp_path: Path
) -> None:
    with running(partial(supervise, read_side)):
        eventually((tmp_path / "started").exists, "the live query's process starts")
        assert upkeep.begun.wait(240)
        assert ready_file(read_side.settings, REPLAYING).exists()
        assert not list(tmp_path.glob("load-*"))
        assert not ready_file(read_side.settings, LIVE).exists()
        upkeep.let_go.set()
        assert upkeep.others_begun.wait(240)
        eventually(lambda: len(list(tmp_path.glob("load-*"))) == len(BY_GROUP.stores), "the loaders run beside it")
        parts = upkeep.parts
        assert parts is not None
        eventually(lambda: all(parts.is_up(each) for each in (LIVE, "postgres")), "though Spark died early four times")
        assert not ready_file(read_side.settings, EVERYTHING).exists(), "some views may not be built yet"
        upkeep.others_let_go.set()
        eventually(ready_file(read_side.settings, EVERYTHING).exists, "all is up")
        before = (tmp_path / "started").read_text()
        parts.restart(LIVE)
        eventually(lambda: (tmp_path / "started").read_text() > before, "the live query was restarted")
    assert not ready_file(read_side.settings, EVERYTHING).exists()


@pytest.mark.parametrize("is_backlog", [True, False])
def test_only_a_replay_of_a_backlog_holds_up_views_that_need_none(
    is_backlog: bool, read_side: Service, upkeep: FakeUpkeep, tmp_path: Path
) -> None:
    upkeep.is_replaying, upkeep.replays_backlog = True, is_backlog
    upkeep.let_go.set()
    upkeep.others_let_go.set()
    with running(partial(supervise, read_side)):
        eventually((tmp_path / "started").exists, "the live query's process starts")
        if is_backlog:
            assert ready_file(read_side.settings, REPLAYING).exists()
            assert not upkeep.others_begun.is_set()
            upkeep.replays_backlog = False
        eventually(lambda: len(list(tmp_path.glob("load-*"))) == len(BY_GROUP.stores), "the loaders run beside it")
        parts = upkeep.parts
        assert parts is not None
        eventually(lambda: all(parts.is_up(each) for each in (LIVE, "postgres")), "though Spark died early four times")
        assert not ready_file(read_side.settings, EVERYTHING).exists(), "a view is replayed"
        upkeep.is_replaying = False
        eventually(ready_file(read_side.settings, EVERYTHING).exists, "all is up")


def test_who_is_told_to_stop_during_a_replay_stops(read_side: Service, upkeep: FakeUpkeep, tmp_path: Path) -> None:
    with running(partial(supervise, read_side)):
        assert upkeep.begun.wait(240)
    assert not upkeep.let_go.is_set()
    upkeep.let_go.set()
    upkeep.others_let_go.set()
    assert not ready_file(read_side.settings, EVERYTHING).exists()


def test_where_the_query_begins_is_asked_once_nothing_is_replayed_any_more(
    read_side: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_by, order = tmp_path / "held", list[str]()
    held_by.touch()

    def pause(_: float) -> None:
        order.append("wait")
        held_by.unlink()

    monkeypatch.setattr(Service, "prepare", lambda _: "cluster")
    monkeypatch.setattr("headwater.projections.queries.time", SimpleNamespace(sleep=pause))
    monkeypatch.setattr("headwater.projections.spark.session.start_session", lambda *_, **__: order.append("session"))
    monkeypatch.setattr("headwater.projections.queries.starting_offsets", lambda *_: order.append("starting"))
    monkeypatch.setattr("headwater.projections.spark.live.run_live", lambda *_, **__: order.append("query"))
    run_live_query(read_side, held_by)
    assert order == ["session", "wait", "starting", "query"]


def generation(number: int, version: int, *, published: bool = True, of: View = BY_GROUP) -> Generation:
    view: View = replace(of, version=version)  # type: ignore[type-var]
    return Generation(
        view.name, number, version, view.tag, view.fingerprint, "live", {}, {}, datetime.now(UTC), None,
        [], view.declaration, published, None, None, None, None,
        datetime.now(UTC), row_types=view.row_types, topics={},
    )  # fmt: skip


class FakeRegistry(Generations):
    """A registry with these live generations; the last one is the current one."""

    def __init__(self, live: Sequence[Generation]) -> None:
        self._live = live
        self.places: list[StatePlace] = []

    def note_state_place(self, place: StatePlace) -> None:
        self.places.append(place)

    def being_built(self) -> list[Generation]:
        return []

    def prepare(self) -> None:
        """It is there."""

    def live(self) -> dict[str, Generation]:
        return {each.view: each for each in self._live}

    def note_unpublished(self, view: str, generation: int) -> None:
        self._live = [replace(each, published=False) for each in self._live]

    def note_published(self, view: str, generation: int) -> None:
        self._live = [replace(each, published=True) for each in self._live]

    def serving(self, views: Iterable[View]) -> dict[str, Generation]:
        found = {view.name: served_by(view, self._live) for view in views}
        return {name: each for name, each in found.items() if each is not None}


@pytest.mark.parametrize(("live", "built", "published"), [
    ([], True, False),
    ([generation(1, 2)], False, False),
    ([generation(1, 2, published=False)], False, True),
    # the code is new, and takes over, also after a way back to the version before
    ([generation(1, 1)], True, False),
    ([generation(2, 2), generation(1, 1)], True, False),
    # the code is old, and is started again beside the new one: it takes nothing away
    ([generation(1, 2, published=False), generation(2, 3)], False, False),
    ([generation(2, 3)], True, False),
])  # fmt: skip
def test_code_that_starts_builds_its_own_version_and_leaves_a_later_one_its_names(
    live: Sequence[Generation], built: bool, published: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done = {"built": False, "published": False}
    view = replace(BY_GROUP, version=2)
    monkeypatch.setattr(Service, "generations", FakeRegistry(live))
    monkeypatch.setattr(service, "drop_leftovers", lambda *_: None)
    monkeypatch.setattr(Service, "_build", lambda _, views: done.update(built=list(views) == [view]) or [])
    monkeypatch.setattr(service, "publish_live", lambda *_: done.update(published=True))
    Service(LogSettings(state=tmp_path), StoreSettings(), ViewRegistry([("here", view)])).build_missing()
    assert done == {"built": built, "published": published}


def test_a_view_that_changed_without_a_new_version_is_named_and_the_others_are_served(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    changed = replace(BY_THING, columns={**BY_THING.columns, "changed": next(iter(BY_THING.columns.values()))})
    monkeypatch.setattr(Service, "generations", FakeRegistry([generation(1, 1), generation(1, 1, of=BY_THING)]))
    monkeypatch.setattr(service, "drop_leftovers", lambda *_: None)
    declared = Service(LogSettings(state=tmp_path), StoreSettings(), ViewRegistry([("a", BY_GROUP), ("b", changed)]))
    servable = declared.servable()
    assert [*servable.views.views] == ["by_group"]
    assert servable.build_missing() == []
    assert 'view "by_thing": the declaration changed, but the version is still 1: raise the version' in caplog.text
    assert "+ changed=" in caplog.text
    with pytest.raises(ViewDeclarationError, match='view "by_thing": the declaration changed'):
        replace(declared, views=ViewRegistry([("b", changed)])).servable()


def test_who_starts_without_the_registry_waits_until_it_is_known_what_can_be_served(
    read_side: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[dict[str, ViewDeclarationError] | StoreUnavailable] = [StoreUnavailable("PostgreSQL", "gone"), {}]

    def refused(*_: object) -> dict[str, ViewDeclarationError]:
        answer = answers.pop(0)
        if isinstance(answer, StoreUnavailable):
            raise answer
        return answer

    monkeypatch.setattr(Generations, "refused", refused)
    monkeypatch.setattr(service, "REGISTRY_EVERY_S", 0.0)
    assert [*read_side.servable_when_known(threading.Event()).views.views] == ["by_group"]
    assert answers == []


@pytest.fixture
def gates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Service, dict[str, ViewStore], list[View]]:
    """A deployment with the live generation 1 of a stream view, whose state has batch 90; its stores by name; and the
    views that are built."""
    stores: dict[str, ViewStore] = {name: MemoryStore(Memory()) for name in ("postgres", "valkey")}
    built = list[View]()
    monkeypatch.setattr(Service, "generations", FakeRegistry([generation(1, 1, of=GATES)]))
    monkeypatch.setattr(service, "drop_leftovers", lambda *_: None)
    monkeypatch.setattr(store_open, "open_store", lambda name, _: stores[name])

    def build(_: Service, views: Sequence[View]) -> list[View]:
        built.extend(views)
        return []

    monkeypatch.setattr(Service, "_build", build)
    made = Service(LogSettings(state=tmp_path), StoreSettings(), ViewRegistry([("here", GATES)]))
    begin_batch(Checkpoint.of(made.settings, "gates@1.g1"), 90, {"0": 50})
    return made, stores, built


@pytest.mark.parametrize(("reached", "is_lost"), [(50, False), (60, True)])
def test_a_stream_view_whose_state_is_older_than_its_rows_is_computed_again(
    gates: tuple[Service, dict[str, ViewStore], list[View]],
    reached: int,
    is_lost: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    made, stores, built = gates
    for store, end in zip(stores.values(), (40, reached), strict=True):
        store.create(Target(GATES, 1), {"observations/0": end}, {0: 0})
    made.build_missing()
    assert built == [GATES] * is_lost
    assert ("the state of gates@1 g1 is older than its rows: computing it again" in caplog.text) == is_lost


@pytest.mark.parametrize(("reached", "left"), [(50, []), (60, [GATES])])
def test_a_view_that_was_built_is_not_looked_at_again_and_again(
    gates: tuple[Service, dict[str, ViewStore], list[View]], reached: int, left: list[View]
) -> None:
    made, stores, _ = gates
    for store in stores.values():
        store.create(Target(GATES, 1), {"observations/0": reached}, {0: 0})
    unbuilt: list[View] = [GATES]
    assert made._still_unbuilt(unbuilt) == left
    assert unbuilt == left


class Away(MemoryStore):
    """A store that does not answer."""

    def ledgers(self, target: Target) -> dict[int, Ledger]:
        raise StoreUnavailable("memory", "gone")


def test_a_store_that_is_away_is_not_asked_how_far_its_rows_are(
    gates: tuple[Service, dict[str, ViewStore], list[View]], caplog: pytest.LogCaptureFixture
) -> None:
    made, stores, built = gates
    stores["postgres"].create(Target(GATES, 1), {"observations/0": 60}, {0: 0})
    stores["valkey"] = Away(Memory())
    made.build_missing()
    assert built == [GATES]
    stores["postgres"] = Away(Memory())
    with pytest.raises(StoreUnavailable):
        made.why_lost(Target(GATES, 1))
    made.build_missing()
    assert built == [GATES], "its process looks again before it starts the query"
    assert "cannot compare the state of gates@1 g1 with its rows: memory is unavailable" in caplog.text
    Checkpoint.of(made.settings, "gates@1.g1").remove()
    made.build_missing()
    assert built == [GATES, GATES], "that it is gone is known without a store"


def test_a_real_time_view_begins_where_the_stores_are_that_answer(
    gates: tuple[Service, dict[str, ViewStore], list[View]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, stores, _ = gates
    at_once = gate_view(realtime=True)
    monkeypatch.setattr(Service, "generations", FakeRegistry([generation(1, 1, of=at_once)]))
    stores["postgres"].create(Target(at_once, 1), {"observations/0": 60}, {0: 0})
    stores["valkey"] = Away(Memory())
    assert made.applied(Target(at_once, 1))["observations/0"] == 60
    stores["postgres"] = Away(Memory())
    with pytest.raises(StoreUnavailable):
        made.applied(Target(at_once, 1))


def test_names_that_lead_elsewhere_than_the_registry_says_are_led_back(
    gates: tuple[Service, dict[str, ViewStore], list[View]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """PostgreSQL was restored to before a rebuild: readers by the alias would see rows that nobody loads."""
    made, stores, built = gates
    registry = FakeRegistry([generation(1, 1, of=GATES)])
    monkeypatch.setattr(Service, "generations", registry)
    for name in ("postgres", "valkey"):
        store = stores[name] = MemoryStore(Memory())
        for number in (1, 2):
            store.create(Target(GATES, number), {"observations/0": 40}, {0: 0})
        store.publish(Target(GATES, 2 if name == "valkey" else 1))
    made.build_missing()
    assert built == []
    assert "but one leads to 2: was PostgreSQL restored to an earlier state?" in caplog.text
    assert stores["valkey"].shown(GATES.name) == 1
    assert made.compare_names() == [], "they are right again"
    stores["valkey"].publish(Target(GATES, 2))
    stores["postgres"] = AwayNames(Memory())
    registry._live = [generation(1, 1, of=GATES)]
    assert made.compare_names() == []
    assert not registry._live[0].published, "a store that is away hides none"
    stores["postgres"] = stores["valkey"]
    registry._live = [generation(1, 1, of=GATES)]
    assert made.compare_names() == [GATES]
    stores["valkey"].drop(Target(GATES, 1))
    registry._live = [generation(1, 1, of=GATES)]
    assert made.compare_names() == [], "a generation that is gone must be built first"


class AwayNames(Away):
    """A store that does not answer, also about names."""

    def shown(self, view: str) -> int | None:
        raise StoreUnavailable("memory", "gone")


def test_a_read_side_with_state_says_where_it_keeps_it(
    gates: tuple[Service, dict[str, ViewStore], list[View]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made, _, _ = gates
    registry = FakeRegistry([generation(1, 1, of=GATES)])
    monkeypatch.setattr(Service, "generations", registry)
    made.build_missing()
    (noted,) = registry.places
    assert noted.id == known_id(made.settings)
    assert noted.place.endswith(f":{tmp_path}")
    replace(made, views=ViewRegistry([])).note_state_place()
    assert registry.places == [noted], "without state it is of no interest"


def test_the_process_of_stream_views_says_it_again_and_again(
    gates: tuple[Service, dict[str, ViewStore], list[View]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _, _ = gates
    registry = FakeRegistry([generation(1, 1, of=GATES)])
    ready_file(made.settings, STREAMS).parent.mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(Service, "generations", registry)
    monkeypatch.setattr(Service, "prepare", lambda _: "cluster")
    monkeypatch.setattr(queries, "_sweep", lambda _: None)
    monkeypatch.setattr(queries, "NOTE_S", 0.01)

    def wait(*_: object) -> bool:
        eventually(lambda: len(registry.places) > 2, "it is said again and again")
        return False

    monkeypatch.setattr(queries, "_have_records", wait)
    queries.run_stream_queries(made, threading.Event())
    assert {place.id for place in registry.places} == {known_id(made.settings)}


def test_a_view_with_a_query_of_its_own_can_be_left_out(
    gates: tuple[Service, dict[str, ViewStore], list[View]], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _, built = gates
    missing = replace(made, views=ViewRegistry([("here", GATES), ("here", BY_GROUP)]))
    monkeypatch.setattr(Service, "generations", FakeRegistry([]))
    assert missing.build_missing(only_folded=True) == [GATES]
    assert built == [BY_GROUP]
    assert missing.build_missing() == []
    assert sorted(view.name for view in built) == ["by_group", "by_group", "gates"]


def test_an_event_that_changed_without_its_version_is_an_error_in_the_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture, log: MemoryLog
) -> None:
    monkeypatch.setattr(Service, "generations", FakeRegistry([]))
    monkeypatch.setattr(service, "drop_leftovers", lambda *_: None)
    made = Service(LogSettings(state=tmp_path, modules=("listings",)), StoreSettings(), ViewRegistry([]))
    settle_versions(log, CommandRegistry.load(["listings"]).events.values())
    made.build_missing()
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
    fields = b'{"fields": {"listing_id": "str"}, "nested": {}}'
    log.submit(Entry(topics.STARTS, "events/listing.sold/1", fields, 1), 0)
    made.build_missing()
    assert "listing.sold" not in caplog.text, "none of it was recorded"
    sold = encode(Envelope("listing/L1/1", "listing.sold", "listing/L1", datetime(2026, 1, 2, tzinfo=UTC), {}))
    log.submit(Entry(topics.EVENTS, "listing/L1/1", sold, 1), 0)
    made.build_missing()
    assert 'event "listing.sold" (' in caplog.text
    assert '"city"' in caplog.text
