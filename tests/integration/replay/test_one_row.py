"""`replay row`: one row folded again from the log, compared with each store and replaced, while events come."""

from __future__ import annotations

import os
from typing import Any

import psycopg
import pytest
import valkey

from headwater.eventlog.letters import Letter
from headwater.eventlog.topics import PATCHES
from headwater.projections.generations.rebuild import single_rows
from headwater.projections.generations.registry.sources import patch_ends
from headwater.projections.loading.dead_letters import DeadLetters
from headwater.projections.reading.reader import fold
from headwater.projections.stores.names import alias_name, cache_key, cache_ranking, patch_key
from headwater.projections.table.view import TableView
from headwater.projections.testing.rows import answered_rows
from headwater.replay.deployment import open_deployment
from headwater.replay.erase import fold_without
from headwater.replay.erasing import find
from tests.integration.replay.deployed import BOUND_S, Command, Deployed
from tests.integration.replay.things import by_group, by_thing, things
from tests.support.elasticsearch_client import elasticsearch
from tests.support.waiting import eventually

pytestmark = pytest.mark.xdist_group("another Spark session")


def built(deployed: Deployed, *views: TableView, length: int = 80) -> None:
    deployed.generations.prepare()
    deployed.append(things(length))
    deployed.emit(views)  # before the rebuild: bulk has them all
    for _, each in deployed.rebuilder().rebuild_all(views):
        assert not isinstance(each, Exception), each


def tamper(deployed: Deployed, key: str) -> None:
    """Make the total of a row of by_group wrong in every store."""
    environment = deployed.settings.environment
    with psycopg.connect(deployed.stores.postgres) as connection:
        connection.execute(f'UPDATE "{environment}".by_group__g1 SET total = total + 1 WHERE "group" = %s', [key])
    with elasticsearch(deployed.stores.elasticsearch) as client:
        index = alias_name(environment, "by_group")
        source = client.get(index=index, id=key)["_source"]
        client.index(index=index, id=key, document={**source, "total": source["total"] + 1}, refresh=True)
    with valkey.Valkey.from_url(deployed.stores.valkey) as client:
        client.delete(cache_key(environment, "by_group", 1, key))


def some_key(deployed: Deployed) -> str:
    """A row of by_group that is shown, and has a total."""
    rows = fold(by_group, deployed.sources)
    return next(key for key, row in sorted(rows.items()) if row["total"])


def outcomes(document: Any) -> dict[str, str]:
    return {store["store"]: store["outcome"] for store in document["stores"]}


@pytest.mark.complete
def test_a_row_is_compared_with_the_log_and_replaced_where_it_differs(deployed: Deployed, replay: Command) -> None:
    built(deployed, by_group)
    key = some_key(deployed)
    expected = answered_rows(by_group, fold(by_group, deployed.sources))[key]
    told = replay("row", "by_group", key)
    assert told.code == 0, told.complaint
    assert set(outcomes(told.document).values()) == {"equal"}
    assert (told.document["row"], told.document["streams"]) == (expected, None)
    assert "by_group: read the log" in told.complaint

    tamper(deployed, key)
    told = replay("row", "by_group", key)
    assert told.code == 3
    assert outcomes(told.document) == dict.fromkeys(deployed.servers, "differs")
    found = {store["store"]: store for store in told.document["stores"]}
    for store in ("postgres", "elasticsearch"):
        assert found[store]["stored"] == {"total": expected["total"] + 1}
        assert found[store]["log"] == {"total": expected["total"]}
    assert found["valkey"]["stored"] is None

    before = patch_ends(deployed.log, deployed.settings)
    told = replay("row", "by_group", key, "--write", "--store", "valkey")
    assert (told.code, outcomes(told.document)) == (0, {"valkey": "replaced"})
    told = replay("row", "by_group", key, "--write")
    assert told.code == 0
    assert outcomes(told.document) == {"postgres": "replaced", "elasticsearch": "replaced", "valkey": "equal"}
    announced = [record.key for at in before.items() for record in deployed.log.read(PATCHES, *at)]
    assert announced == [patch_key(by_group.tag, key)] * 3, "followers of changes read it once more per store"
    deployed.rows_become_the_references(by_group)
    with deployed.served([by_group]):
        deployed.append(things(40, seed=2))
        deployed.emit([by_group])
        deployed.rows_become_the_references(by_group)
        deployed.beat()
        deployed.emit([by_group])
        assert replay("verify", "by_group").code == 0


@pytest.mark.complete
def test_rows_without_events_are_removed_with_their_places_in_rankings(deployed: Deployed, replay: Command) -> None:
    built(deployed, by_group)
    environment = deployed.settings.environment
    with psycopg.connect(deployed.stores.postgres) as connection:
        connection.execute(f'INSERT INTO "{environment}".by_group__g1 ("group", total) VALUES (\'ghost\', 7)')
    with elasticsearch(deployed.stores.elasticsearch) as client:
        index = alias_name(environment, "by_group")
        source = client.get(index=index, id=some_key(deployed))["_source"]
        client.index(index=index, id="ghost", document={**source, "group": "ghost"}, refresh=True)
    ranking = cache_ranking(environment, "by_group", 1, "-total", "")
    with valkey.Valkey.from_url(deployed.stores.valkey) as client:
        held: Any = client.hgetall(cache_key(environment, "by_group", 1, some_key(deployed)))
        client.hset(cache_key(environment, "by_group", 1, "ghost"), mapping={**held, "state": b'{"total":7}'})
        client.zadd(ranking, {"ghost": -7})
        told = replay("row", "by_group", "ghost", "--write")
        assert (told.code, told.document["row"]) == (0, None), told.complaint
        assert outcomes(told.document) == dict.fromkeys(deployed.servers, "replaced")
        members: Any = client.zrange(ranking, 0, -1)
        assert b"ghost" not in members
        assert not client.exists(cache_key(environment, "by_group", 1, "ghost"))
    with elasticsearch(deployed.stores.elasticsearch) as client:
        client.indices.refresh(index=index)
    deployed.rows_become_the_references(by_group)
    told = replay("row", "by_group", "ghost")
    assert (told.code, outcomes(told.document)) == (0, dict.fromkeys(deployed.servers, "equal"))


@pytest.mark.complete
def test_a_row_that_keeps_changing_is_replaced_without_losing_or_doubling_an_event(
    deployed: Deployed, replay: Command
) -> None:
    built(deployed, by_group)
    key = some_key(deployed)
    with deployed.served([by_group]):
        with deployed.traffic(iter(things(2_000, seed=9)), [by_group]):
            eventually(lambda: deployed.emitted > 100, "traffic")
            for _ in range(3):
                tamper(deployed, key)
                told = replay("row", "by_group", key, "--write")
                assert told.code == 0, (told.document, told.complaint)
        deployed.rows_become_the_references(by_group)


@pytest.fixture
def slow_loaders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that start at this moment may have the time that a test has: on a busy machine, joining takes longer."""
    monkeypatch.setattr(single_rows, "FOLLOW_S", BOUND_S)


@pytest.mark.usefixtures("slow_loaders")
def test_rows_of_erased_events_are_folded_without_them_once_their_patches_are_applied(
    deployed: Deployed, replay: Command
) -> None:
    views = [by_group, by_thing]
    built(deployed, *views)
    deployed.append(things(120)[80:])
    deployed.emit(views)  # and nobody loads yet
    moved = [source for source in deployed.sources[80:] if source.envelope.type.endswith("moved")]
    for gone in (moved[-1], deployed.sources[0]):
        target = find(deployed.log, gone.envelope.id, is_event=True)
        deployed.erase(gone)
        with deployed.served(views), deployed.heartbeats(views), open_deployment(os.environ) as deployment:
            found = {generation.view: generation for generation in fold_without(deployment, views, target)}
            assert [difference.left for difference in found.values()] == ["", ""], found
            assert found["by_group"].rows == len(set(by_group.rows_of(gone.envelope) or ())), found
            for view in views:
                deployed.rows_become_the_references(view)
    assert found["by_group"].replaced == 1
    with deployed.heartbeats(views), deployed.served(views):
        assert replay("verify", "by_group", "by_thing").code == 0


@pytest.mark.complete
def test_rows_of_erased_events_that_no_loader_has_applied_are_named(
    deployed: Deployed, replay: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(single_rows, "FOLLOW_S", 0.5)
    built(deployed, by_group)
    deployed.append(things(120)[80:])
    gone = deployed.sources[-1]
    target = find(deployed.log, gone.envelope.id, is_event=True)
    deployed.erase(gone)
    with open_deployment(os.environ) as deployment:
        (found,) = fold_without(deployment, [by_group], target)
        monkeypatch.setattr("headwater.replay.erase.MAX_KEYS", 0)
        (many,) = fold_without(deployment, [by_group], target)
        target.events.stored.clear()
        (unknown,) = fold_without(deployment, [by_group], target)
    assert found.left == "elasticsearch, postgres, valkey did not apply the events, or kept changing the rows"
    assert found.replaced == 0
    assert many.left.startswith("the events changed ")
    assert unknown.left == "the events do not tell which rows they changed"


@pytest.mark.complete
def test_an_erased_event_leaves_its_row_when_that_is_folded_again(deployed: Deployed, replay: Command) -> None:
    built(deployed, by_thing)
    gone = deployed.sources[0]
    key = gone.envelope.data["thing_id"]
    deployed.erase(gone)
    told = replay("row", "by_thing", key)
    assert told.code == 3, told.complaint
    assert outcomes(told.document) == dict.fromkeys(deployed.servers, "differs")
    assert replay("row", "by_thing", key, "--write").code == 0
    expected = answered_rows(by_thing, fold(by_thing, deployed.sources))
    assert replay("row", "by_thing", key).document["row"] == expected.get(key)
    deployed.rows_become_the_references(by_thing)


@pytest.mark.complete
@pytest.mark.usefixtures("slow_loaders")
def test_a_retry_of_dead_letters_folds_only_their_rows_again(deployed: Deployed, replay: Command) -> None:
    views = [by_group, by_thing]
    built(deployed, *views)
    deployed.append(things(120)[80:])
    missed = next(
        source for source in reversed(deployed.sources) if all(view.rows_of(source.envelope) for view in views)
    )
    deployed.sources.remove(missed)  # the live query could not read it, and the others went on
    deployed.emit(views)
    deployed.sources.append(missed)
    deployed.emitted += 1
    wrong = next(key for key in fold(by_group, deployed.sources) if key not in by_group.rows_of(missed.envelope))
    tamper(deployed, wrong)
    at, letters = missed.position, DeadLetters(deployed.settings)
    letter = Letter("could not be read", "2026-01-02T03:04:05Z", missed.envelope.id.encode(), missed.record.encode())
    letters.put(f"events/{at.partition}/{at.offset}", letter.to_json())
    letters.add(f"patches/postgres/{by_group.tag}/0/5/0", "refused", wrong.encode())
    letters.flush()
    with deployed.served(views), deployed.heartbeats(views):
        told = replay("dead-letters", "retry", "--all")
        for view in views:
            deployed.rows_become_the_references(view)
    assert told.code == 0, told.complaint
    rows = {row["view"]: row["rows"] for row in told.document["folded"]}
    changed = {view.name: len(view.rows_of(missed.envelope) or ()) for view in views}
    assert rows == {"by_group": changed["by_group"] + 1, "by_thing": changed["by_thing"]}
    assert not rows.keys() & set(told.document["rebuilt"]), "only views that nobody had built yet are built"
    assert replay("dead-letters", "list").document["letters"] == []
    assert {generation.generation for view in views for generation in deployed.generations.of(view.name)} == {1}
