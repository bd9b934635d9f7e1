"""The commands on a real deployment: what they do, what they say, and their exit codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import orjson
import psycopg
import pytest
import valkey

from headwater.commands.handling.handler import dead_letter
from headwater.commands.reacting.causes import digest
from headwater.eventlog.envelope import Envelope, encode, partition_of
from headwater.eventlog.ports import Entry, Record
from headwater.eventlog.topics import COMMANDS, INBOX, PROCESSES
from headwater.projections.generations.rebuild.rebuild import Step
from headwater.projections.generations.rebuild.rebuilder import Rebuilder
from headwater.projections.loading.dead_letters import DeadLetters
from headwater.projections.reading.reader import fold
from headwater.projections.stores.names import cache_ranking
from headwater.projections.stores.store import Target
from headwater.projections.table.expressions import Source
from tests.integration.replay.deployed import Command, Deployed
from tests.integration.replay.things import by_group, things
from tests.support.states import differences

pytestmark = pytest.mark.xdist_group("another Spark session")


def rebuilder(deployed: Deployed) -> Rebuilder:
    deployed.generations.prepare()
    return deployed.rebuilder()


def an_id_that_is_repeated_fails_the_check_of_the_log(deployed: Deployed, replay: Command) -> None:
    event = deployed.sources[-1]  # by a handler that decided its command again
    deployed.append_raw(event.envelope.id, event.record.encode(), event.position.partition)
    told = replay("verify", "by_group")
    assert (told.code, told.document["log"]["repeated"]["count"]) == (3, 1)
    (problem,) = told.document["log"]["repeated"]["sample"]
    assert (problem["stream"], problem["earlier"]) == (event.envelope.stream, str(event.position))


def event_that_shows(sources: Sequence[Source]) -> Source:
    """An event without which the rows are others; many are hidden by those after them."""
    rows = fold(by_group, sources)
    return next(
        source for source in sources if fold(by_group, [other for other in sources if other is not source]) != rows
    )


def test_verify_finds_nothing_under_traffic_and_then_the_row_that_was_tampered_with(
    deployed: Deployed, replay: Command
) -> None:
    rebuilder(deployed).rebuild(by_group)
    deployed.append(things(60))
    deployed.emit([by_group])
    with deployed.served([by_group]):
        with deployed.traffic(iter(things(2_000, seed=9)), [by_group]):
            told = replay("verify", "by_group")
        (verified,) = told.document["views"]
        in_motion = any(each["undecided"] for each in verified["stores"])  # a slow loader never catches up with traffic
        assert (told.code, told.document["failed"]) == (3 if in_motion else 0, []), told.complaint
        assert "by_group: compare" in told.complaint.splitlines(), "progress goes to standard error"
        assert {store["store"] for store in verified["stores"]} == {*deployed.servers, "valkey rankings"}
        assert all(store["rows"] > 0 and not store["differences"] for store in verified["stores"])
        deployed.rows_become_the_references(by_group)

        schema = deployed.settings.environment
        with psycopg.connect(deployed.stores.postgres) as connection:
            connection.execute(f'UPDATE "{schema}".by_group__g1 SET total = total + 1 WHERE "group" = %s', ["a"])
            connection.execute(f'DELETE FROM "{schema}".by_group__g1 WHERE "group" = %s', ["b"])
        ranking = cache_ranking(schema, "by_group", 1, "-total", "")
        with valkey.Valkey.from_url(deployed.stores.valkey) as client:
            ((last, _),) = client.zpopmax(ranking)
        with deployed.heartbeats([by_group]):
            told = replay("verify", "by_group")
    assert told.code == 3
    found = {store["store"]: store for store in told.document["views"][0]["stores"]}
    assert {change["key"]: set(change["right"]) for change in found["postgres"]["sample"]}.keys() == {"a", "b"}
    (tampered,) = (change for change in found["postgres"]["sample"] if change["key"] == "a")
    assert tampered["left"]["total"] == tampered["right"]["total"] + 1
    assert not found["elasticsearch"]["differences"]
    assert not found["valkey"]["differences"]
    (unranked,) = found["valkey rankings"]["sample"]
    assert (orjson.loads(unranked["key"]), unranked["left"]) == (["-total", [], last.decode()], None)

    deployed.erase(event_that_shows(deployed.sources))
    with deployed.served([by_group]), deployed.heartbeats([by_group]):
        told = replay("verify", "by_group")
        found = {store["store"]: store for store in told.document["views"][0]["stores"]}
        assert found["valkey"]["differences"], "live, an event that was taken in stays until a rebuild"
        assert replay("rebuild", "by_group").code == 0
        deployed.rows_become_the_references(by_group)
        assert replay("verify", "by_group").code == 0
        an_id_that_is_repeated_fails_the_check_of_the_log(deployed, replay)
    states = [generation.state for generation in deployed.generations.of("by_group")]
    assert states == ["retired", "live"], "what was built aside is dropped"


@pytest.mark.complete
@pytest.mark.usefixtures("spark")
def test_a_view_as_of_then_stands_beside_the_live_one_until_it_is_dropped(deployed: Deployed, replay: Command) -> None:
    deployed.append(things(120))
    assert replay("rebuild", "by_group").code == 0
    times = sorted(source.timestamp_ms for source in deployed.sources)
    half_ms = times[len(times) // 2]
    until = datetime.fromtimestamp(half_ms / 1000, UTC).isoformat()
    then = replace(by_group, name="then")

    told = replay("rebuild", "by_group", "--until", until, "--as", "then")
    assert told.code == 0, told.complaint
    early = [source for source in deployed.sources if source.timestamp_ms < half_ms]
    assert 0 < len(early) < len(deployed.sources)
    for name, server in deployed.servers.items():
        assert differences(server.rows(then), fold(by_group, early)) == [], name
    deployed.rows_become_the_references(by_group)
    told = replay("diff", "by_group", "then", "--store", "valkey")
    assert told.code == 3
    assert told.document["differences"] > 0

    places = ",".join(f"{number}:{deployed.log.end('events', number) // 2}" for number in range(2))
    told = replay("rebuild", "by_group", "--from", places, "--as", "then")
    assert told.code == 0, told.complaint
    firsts = {int(each.split(":")[0]): int(each.split(":")[1]) for each in places.split(",")}
    late = [source for source in deployed.sources if source.position.offset >= firsts[source.position.partition]]
    assert late
    for name, server in deployed.servers.items():
        assert differences(server.rows(then), fold(by_group, late)) == [], name

    assert replay("rebuild", "by_group", "--until", until).code == 2
    assert replay("rebuild", "by_group", "--until", "yesterday", "--as", "then").code == 2
    assert replay("rebuild", "by_group", "--as", "by_thing").code == 2
    assert replay("drop", "by_group").code == 2
    listed = {view["view"]: view for view in replay("generations").document if view["live"]}
    assert {name for name, size in listed["then"]["stores"].items() if size["size_bytes"]} == {
        "postgres",
        "elasticsearch",
    }
    assert listed["then"]["rows"] >= len(deployed.servers["postgres"].rows(then))
    assert listed["then"]["selection"] == f"from {places}"
    assert (replay("drop", "then").code, replay("generations", "then").document != []) == (2, True), "nobody to ask"
    assert {row["generation"] for row in replay("drop", "then", "--yes").document["dropped"]} == {1, 2}
    assert [generation.view for generation in deployed.generations.all()] == ["by_group"]
    deployed.rows_become_the_references(by_group)


def test_rollback_takes_in_what_came_since_and_prune_ends_it(deployed: Deployed, replay: Command) -> None:
    deployed.append(things(40))
    assert replay("rollback", "by_group").code == 1
    assert replay("rebuild", "by_group").code == 0
    assert replay("rebuild", "by_group").code == 0
    with deployed.served([by_group]):
        deployed.append(things(40, seed=2))  # no live query made patches of these
        told = replay("rollback", "by_group")
        assert told.code == 0, told.complaint
        assert [row["generation"] for row in told.document["views"]] == [1]
        deployed.rows_become_the_references(by_group)
        deployed.emitted = len(deployed.sources)
        deployed.append(things(40, seed=3))
        deployed.emit([by_group])
        deployed.rows_become_the_references(by_group)
        assert [row["generation"] for row in replay("rollback", "by_group").document["views"]] == [2]
        deployed.rows_become_the_references(by_group)
    assert replay("diff", "by_group@g1", "by_group@g3").code == 1
    assert replay("prune").code == 2
    told = replay("prune", "--all", "--yes")
    assert [(row["view"], row["generation"]) for row in told.document["dropped"]] == [("by_group", 1)]
    told = replay("rollback", "by_group")
    assert (told.code, "no previous generation" in told.complaint) == (1, True)


@pytest.mark.complete
def test_what_cannot_be_read_stops_a_rebuild_by_name_or_goes_to_the_dead_letters(
    deployed: Deployed, replay: Command
) -> None:
    deployed.append(things(30))
    letters = DeadLetters(deployed.settings)
    letters.add("patches/postgres/by_thing@1/0/5", "refused", b"a")
    event = encode(Envelope("order/O/1", "order.placed", "order/O", datetime.now(UTC), {}))
    stopped = orjson.dumps({"stopped": digest("order/O/1")})
    deployed.log.submit(Entry(PROCESSES, "p/O", stopped, 0), partition_of("p/O", 2)).result(240)
    for topic, value in ((INBOX, event), (COMMANDS, b"no command")):
        buried = dead_letter(Record(topic, 0, 3, "p/O", value, 1_767_323_045_678), "cannot be read", 0)
        letters.put(buried.key, buried.value)
    letters.flush()
    told = replay("dead-letters", "retry", "--all")
    retried = ["patches/postgres/by_thing@1/0/5", "process-inbox/0/3"]
    expected = {
        "retried": retried,
        "rebuilt": ["by_thing"],
        "commands": [],
        "failed": [],
        "not_needed": [],
        "folded": [],
    }
    assert told.document == expected, told.complaint
    sent = [record for p in range(2) for record in deployed.log.read(INBOX, p, 0)]
    assert [(record.key, record.value) for record in sent] == [("p/O", event)]
    told = replay("dead-letters", "retry", "commands/0/3")
    assert (told.code, "still not a valid command" in told.complaint) == (1, True)
    (left,) = replay("dead-letters", "list").document["letters"]
    assert left == {
        "key": "commands/0/3",
        "reason": "cannot be read",
        "time": "2026-01-02T03:04:05.678000Z",
        "record": "p/O no command",
    }
    letters.put("commands/0/3", None)
    letters.flush()

    place = deployed.log.end("events", 1)
    deployed.append_raw("poor thing", b'{"specversion":"1.0"}', 1)
    deployed.append(things(30, seed=2))
    told = replay("rebuild", "by_group")
    assert told.code == 1
    for part in (f"record 1:{place}", "poor thing", "--skip-poison", "untouched"):
        assert part in told.complaint
    assert deployed.generations.of("by_group") == []

    told = replay("rebuild", "by_group", "--skip-poison")
    assert (told.code, told.document["views"][0]["skipped"]) == (0, 1), told.complaint
    deployed.rows_become_the_references(by_group)
    (letter,) = replay("dead-letters", "list").document["letters"]
    assert letter["key"] == f"events/1/{place}"
    assert '"id" is missing' in letter["reason"]
    told = replay("dead-letters", "retry", letter["key"])
    assert told.code == 1
    assert f'record 1:{place} still cannot be read: not an event: "id" is missing' in told.complaint
    assert len(replay("dead-letters", "list").document["letters"]) == 1
    assert replay("dead-letters", "retry", "events/9/9").code == 2


@pytest.mark.complete
def test_two_rebuilds_of_one_view_and_a_plan_before_and_after_a_new_version(
    deployed: Deployed, replay: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed.append(things(60))
    deployed.generations.prepare()
    with deployed.generations.rebuilding("by_group"):
        told = replay("rebuild", "by_group", "by_thing")
        assert (told.code, "is running (replay, process" in told.complaint) == (1, True), told.complaint
        assert [view["view"] for view in told.document["views"]] == ["by_thing"], "the other one goes on"
        assert [view["view"] for view in told.document["failed"]] == ["by_group"]
    assert replay("rebuild", "by_group").code == 0
    told = replay("rebuild", "by_group", "--dry-run")
    assert told.document["views"][0]["offsets"] == sum(deployed.log.end("events", number) for number in range(2))
    assert told.document["views"][0]["seconds"] > 0
    actions = {view["view"]: view["action"] for view in replay("plan").document["views"]}
    assert (actions["by_group"], actions["listings"]) == ("nothing", "build")

    fewer = {name: column for name, column in by_group.columns.items() if name != "latest"}
    same_version = replace(by_group, columns=fewer)
    monkeypatch.setattr("tests.integration.replay.things.by_group", same_version)
    told = replay("plan")
    (planned,) = (view for view in told.document["views"] if view["view"] == "by_group")
    assert (told.code, planned["action"], planned["seconds"] > 0) == (3, "refuse", True), "how long a rebuild takes"
    assert any(line.startswith("- latest=") for line in planned["changes"])

    next_version = replace(same_version, version=2)
    old, new = by_group, next_version
    deployed.emit([old])
    with deployed.served([old]):

        def events_come(step: Step) -> None:
            """For which only the old version's live query makes patches."""
            if step.phase == "index":
                deployed.append(things(60, seed=5))
                deployed.emit([old])
                deployed.rows_become_the_references(old)

        built = rebuilder(deployed).rebuild(new, events_come)
        assert (built.generation, deployed.generations.live()["by_group"].tag) == (2, "by_group@2")
        deployed.rows_become_the_references(new)
        deployed.append(things(60, seed=6))
        deployed.emit([old])  # the old one's progress says nothing of the new one
        deployed.generation_becomes_the_references(Target(old, 1))  # its code still runs, and loads its own
    deployed.emitted -= 60
    with deployed.served([new]):
        deployed.emit([new])
        deployed.rows_become_the_references(new)
    told = replay("rollback", "by_group")
    assert (told.code, "run the code of that version" in told.complaint) == (1, True)

    monkeypatch.setattr("tests.integration.replay.things.by_group", old)
    (planned,) = (view for view in replay("plan").document["views"] if view["view"] == "by_group")
    assert (planned["action"], planned["live"]) == ("nothing", "by_group@1")
    assert replay("publish", "by_group").code == 1, "the aliases are those of the later version"
    deployed.append(things(60, seed=7))
    assert [row["generation"] for row in replay("rollback", "by_group").document["views"]] == [1]
    deployed.rows_become_the_references(old)
    assert [row["generation"] for row in replay("prune", "by_group", "--yes").document["dropped"]] == [2]
