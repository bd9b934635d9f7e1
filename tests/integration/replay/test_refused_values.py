"""Values that a store refuses: a rebuild names them, or leaves them out and has the rows that the loaders have."""

from __future__ import annotations

import json
import random
import string
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from msgspec import structs

from headwater.eventlog.letters import Letter
from headwater.eventlog.topics import DEAD_LETTERS
from headwater.projections.engines import EngineChoice, SparkQueries, new_engine
from headwater.projections.errors import RebuildFailed
from headwater.projections.generations.rebuild.rebuild import Options
from headwater.projections.generations.rebuild.rebuilder import Rebuilder
from headwater.projections.stores.backend import without_empty
from headwater.projections.stores.declared import Cache, Elasticsearch, Postgres
from headwater.projections.stores.open import open_reader
from headwater.projections.stores.store import Target
from headwater.projections.table.computations import point, when
from headwater.projections.table.expressions import Source
from headwater.projections.table.folds import add, count, last
from headwater.projections.table.view import TableView
from headwater.replay.comparison import Verified, verify
from tests.contracts.view_histories import Put
from tests.contracts.view_histories import thing as recorded  # noqa: F401 - of the deployment under test
from tests.integration.replay.deployed import Deployed
from tests.integration.replay.things import things
from tests.support.spark_rows import session
from tests.support.waiting import eventually

pytestmark = pytest.mark.xdist_group("another Spark session")

MOST = 2**63 - 1
MOST_PAID = "9" * 36 + ".99"
LONG = "".join(random.Random(1).choices(string.ascii_letters, k=9_000))
PLACES = TableView(
    "places",
    "thing_id",
    {
        "total": add({Put: "small"}),
        "puts": count(Put),
        "text": last({Put: "text"}),
        "place": last({Put: point("latitude", "longitude")}),
        "paid": add({Put: when("flag", Decimal(MOST_PAID), "price")}),
    },
    (Postgres(indexes=(("text",),)), Elasticsearch(), Cache()),
)


def put(number: int, thing: str, **data: Any) -> Source:
    """An event of a thing."""
    one = next(each for each in things(50) if each.envelope.type == "thing.put")
    document = json.loads(one.record)
    fields = dict.fromkeys(document["data"]) | {"group": "g", "small": 1, "latitude": 1.0, "longitude": 2.0}
    document["id"], document["subject"], document["sequence"] = f"thing/{thing[:9]}/{number}", f"thing/{thing}", number
    document["data"] = fields | {"thing_id": thing, "text": "short"} | data
    envelope = structs.replace(
        one.envelope, id=document["id"], stream=document["subject"], sequence=number, data=document["data"]
    )
    return replace(one, envelope=envelope, record=json.dumps(document), timestamp_ms=one.timestamp_ms + number)


EVENTS = (
    put(1, "sum", small=MOST), put(2, "sum"), put(3, "sum", small=5),
    put(1, "text"), put(2, "text", text=LONG, small=7),
    put(1, "place"), put(2, "place", latitude=91.0, small=7),
    put(1, "paid", flag=True), put(2, "paid", price="0.01"), put(3, "paid"),
    put(1, LONG), put(1, "fine"), put(2, "fine"),
)  # fmt: skip
MORE = (put(4, "sum"), put(3, "text", text=LONG), put(3, "place", latitude=95.0), put(2, LONG), put(3, "fine"))
REFUSED: dict[str, dict[str, tuple[int, ...]]] = {
    "postgres": {"sum": (2, 3, 4), "text": (2, 3), LONG: (1, 2), "paid": (2,)},
    "elasticsearch": {"sum": (2, 3, 4), "place": (2, 3), "paid": (2,)},
    "valkey": {"sum": (2, 3, 4), "paid": (2,)},
}
"""By store and key, the numbers of the events that change too much."""


@pytest.fixture
def modules() -> tuple[str, ...]:
    return (__name__,)


def rows(deployed: Deployed, store: str, generation: int) -> dict[str, Any]:
    found = open_reader(store, deployed.stores).rows(Target(PLACES, generation))
    return {key: without_empty(row) for key, row in found}


def letters(deployed: Deployed) -> dict[str, Letter]:
    found = deployed.log.read(DEAD_LETTERS, 0, 0)
    return {record.key: Letter.from_json(record.value) for record in found if record.value is not None}


def expected_letters(deployed: Deployed) -> set[str]:
    """The keys of the dead letters for what was appended so far."""
    placed = {(source.envelope.stream, source.envelope.sequence): source.position for source in deployed.sources}
    return {
        f"patches/{store}/{PLACES.tag}/{position.partition}/{position.offset}/0"
        for store, keys in REFUSED.items()
        for key, numbers in keys.items()
        for number in numbers
        if (position := placed.get((f"thing/{key}", number))) is not None
    }


def expected_puts(deployed: Deployed, store: str) -> dict[str, int]:
    """By key, how many of the events that were appended so far the store takes."""
    taken = Counter[str]()
    for source in deployed.sources:
        key, number = source.envelope.stream.removeprefix("thing/"), source.envelope.sequence
        taken[key] += number not in REFUSED[store].get(key, ())
    return dict(+taken)


def live_has_all(deployed: Deployed, generation: int) -> dict[str, dict[str, Any]]:
    """The rows of each store, once the loaders have loaded all that was appended, and refused what they must.

    It looks at every row: those of another partition come later, and so do those behind a patch that is refused.
    """

    def loaded() -> bool:
        return letters(deployed).keys() == expected_letters(deployed) and all(
            {key: row["puts"] for key, row in rows(deployed, store, generation).items()}
            == expected_puts(deployed, store)
            for store in REFUSED
        )

    eventually(loaded, "all events are loaded or refused")
    return {store: rows(deployed, store, generation) for store in REFUSED}


def verified(rebuilder: Rebuilder, deployed: Deployed) -> Verified:
    """A verification, while heartbeats come: without, a ledger in Elasticsearch may not have the last progress."""

    with deployed.heartbeats([PLACES]):
        return verify(rebuilder, PLACES, skip_poison=True)


@pytest.mark.complete
@pytest.mark.parametrize("choice", [EngineChoice.LOCAL, pytest.param(EngineChoice.SPARK, marks=pytest.mark.complete)])
def test_a_rebuild_has_the_rows_of_the_loaders_and_their_dead_letters(deployed: Deployed, choice: EngineChoice) -> None:
    deployed.generations.prepare()
    made = new_engine(deployed.settings, deployed.log, session, choice)
    queries = SparkQueries(deployed.settings, session)
    rebuilder = Rebuilder(deployed.settings, deployed.stores, deployed.log, deployed.generations, made, queries)
    rebuilder.rebuild(PLACES)
    with deployed.served([PLACES]):
        deployed.append(EVENTS)
        deployed.emit([PLACES])
        live = live_has_all(deployed, 1)
        assert {store: found["sum"]["total"] for store, found in live.items()} == dict.fromkeys(REFUSED, MOST)
        assert {store: found["paid"]["paid"] for store, found in live.items()} == dict.fromkeys(REFUSED, MOST_PAID)
        assert LONG not in live["postgres"]

        with pytest.raises(RebuildFailed, match=r'"places": \w+ refuses record \d:\d+ in row ".*--skip-poison'):
            rebuilder.rebuild(PLACES)
        assert [generation.generation for generation in deployed.generations.of("places")] == [1]
        before = letters(deployed).keys()
        done = rebuilder.rebuild(PLACES, skip_poison=True)
        assert (done.refused, done.skipped) == (len(before), 0)
        assert {store: rows(deployed, store, done.generation) for store in REFUSED} == live
        assert letters(deployed).keys() == before

        deployed.append(MORE)
        deployed.emit([PLACES])
        live_has_all(deployed, done.generation)
        found = verified(rebuilder, deployed)
        assert found.equal, found

        if choice is EngineChoice.SPARK:
            return  # what follows is about parts and loaders; this engine has rebuilt and verified
        part = rebuilder.build_part(PLACES, "a_part", Options(skip_poison=True))
        assert part.refused == len(letters(deployed)) == len(expected_letters(deployed))
        # a row of which the store holds the result is complete again
        deployed.append([put(4, "place"), put(4, "fine")])
        deployed.emit([PLACES])
        assert live_has_all(deployed, done.generation)["elasticsearch"]["place"]["puts"] == 2
        found = verified(rebuilder, deployed)
        differing = {store.store: [row.key for row in store.sample] for store in found.stores}
        assert differing == {"postgres": [], "elasticsearch": ["place"], "valkey": []}
        again = rebuilder.rebuild(PLACES, skip_poison=True).generation
        assert rows(deployed, "elasticsearch", again)["place"]["puts"] == 4


@pytest.mark.complete
def test_a_rollback_leaves_out_what_a_store_refuses(deployed: Deployed) -> None:
    deployed.generations.prepare()
    made = new_engine(deployed.settings, deployed.log, session, EngineChoice.LOCAL)
    queries = SparkQueries(deployed.settings, session)
    rebuilder = Rebuilder(deployed.settings, deployed.stores, deployed.log, deployed.generations, made, queries)
    first = rebuilder.rebuild(PLACES).generation
    rebuilder.rebuild(PLACES)
    deployed.append(EVENTS)
    assert rebuilder.roll_back(PLACES).generation == first
    assert letters(deployed).keys() == expected_letters(deployed)
    found = {store: rows(deployed, store, first) for store in REFUSED}
    assert {store: each["fine"]["puts"] for store, each in found.items()} == dict.fromkeys(REFUSED, 2)
    assert {store: each["sum"]["total"] for store, each in found.items()} == dict.fromkeys(REFUSED, MOST)
