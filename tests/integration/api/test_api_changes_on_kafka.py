"""Following changes of a view in each store: real patches, a real loader, a real API."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import httpx
import orjson
import pytest

from headwater.compose.ports import free_port
from headwater.eventlog.envelope import partition_of
from headwater.eventlog.topics import PATCHES
from headwater.projections.kinds import table_view
from headwater.projections.loading.loader import Loader
from headwater.projections.reading import reader
from headwater.projections.stores.names import patch_key
from headwater.projections.stores.open import open_store
from headwater.projections.stores.store import Target
from headwater.projections.table.expressions import Source
from tests.integration.api.api_deployment import START_S, Deployment, is_ready, stop
from tests.integration.api.api_rows import SOURCES, load
from tests.support.background import running
from tests.support.ordered_producer import ordered_producer, stored
from tests.support.table_views import table_views
from tests.support.waiting import eventually

VIEWS = ("listings", "listing_search", "listing_card")
EVENT_S = 300


def emit(deployment: Deployment, name: str, sources: list[Source]) -> None:
    """Write the patches of events, as the live query does."""
    view = table_views()[name]
    producer = ordered_producer(deployment.log.bootstrap)
    for source in sources:
        for patch in reader.lift(view, source):
            key, (offset, number) = patch_key(view.tag, patch.key), patch.place
            value = {"p": int(patch.source), "o": offset, "i": number, "t": 1, "c": patch.fields}
            topic, partition = deployment.log.topic(PATCHES), partition_of(key, 4)
            producer.produce(topic, orjson.dumps(value), key.encode(), partition)
    stored(producer)


@contextmanager
def loading(deployment: Deployment, target: Target) -> Iterator[None]:
    with (
        closing(open_store(target.view.stores[0].name, deployment.stores)) as store,
        running(Loader(store, lambda: [target], deployment.log, partitions=range(4)).run),
    ):
        yield


class Events:
    """The events of an open connection, one after the other."""

    def __init__(self, answer: httpx.Response) -> None:
        self._lines = answer.iter_lines()
        self.last_id = ""

    def read(self, wanted: str = "an event") -> tuple[str, Any]:
        name, data, began = "", None, time.monotonic()
        for line in self._lines:  # heartbeats too
            assert time.monotonic() - began < EVENT_S, f"nothing was sent while waiting for {wanted}"
            field, _, value = line.partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                data = orjson.loads(value)
            elif line.startswith("id: "):
                self.last_id = value
            elif not line and name:
                return name, data
        raise AssertionError("the stream has ended")

    def rows(self, expected: dict[str, Any]) -> None:
        """Read changes until these rows are the expected ones; changes of other rows may be sent again."""
        wrong = dict(expected)
        while wrong:
            name, data = self.read(f"rows {wrong}")
            assert name == "change", (name, data)
            key, row = data["key"], data["row"]
            if key in expected and row == expected[key]:
                wrong.pop(key, None)
            elif key in expected:
                wrong[key] = expected[key]


@contextmanager
def following(api: httpx.Client, view: str, query: str = "", **headers: str) -> Iterator[Events]:
    with api.stream("GET", f"/views/{view}/changes?{query}", headers=headers) as answer:
        assert answer.status_code == 200, answer.read()
        events = Events(answer)
        assert events.read()[0] == "open"
        yield events


@pytest.mark.parametrize("name", VIEWS)
def test_whoever_follows_has_the_rows_in_the_end(api: httpx.Client, deployment: Deployment, name: str) -> None:
    target = load(deployment, name, [])
    view, half = table_view(target.view), len(SOURCES) // 2
    touched = {patch.key for source in SOURCES for patch in reader.lift(view, source)}

    def expected(sources: list[Source], keys: set[str]) -> dict[str, Any]:
        rows = reader.fold(view, sources)
        return {key: rows.get(key) for key in keys}

    eventually(lambda: is_live(api, target), f"{name} g{target.generation} answers", START_S)
    with loading(deployment, target):
        with following(api, name) as events:
            first = {patch.key for source in SOURCES[:half] for patch in reader.lift(view, source)}
            emit(deployment, name, SOURCES[:half])
            events.rows(expected(SOURCES[:half], first))
            last_id = events.last_id
        emit(deployment, name, SOURCES[half:])
        later = {patch.key for source in SOURCES[half:] for patch in reader.lift(view, source)}
        with following(api, name, **{"Last-Event-ID": last_id}) as events:
            events.rows(expected(SOURCES, later))
        one = min(later)
        with following(api, name, str(httpx.QueryParams({"key": one})), **{"Last-Event-ID": last_id}) as events:
            events.rows(expected(SOURCES, {one}))
    assert touched == first | later


def is_live(api: httpx.Client, target: Target) -> bool:
    """Whether followers begin in this generation; unlike rows, `open` names it for every store."""
    with api.stream("GET", f"/views/{target.view.name}/changes?for_ms=1") as answer:
        return f'"generation":{target.generation}' in "".join(answer.iter_text())


@pytest.mark.parametrize("name", VIEWS)
def test_what_was_not_loaded_when_a_follower_began(api: httpx.Client, deployment: Deployment, name: str) -> None:
    target = load(deployment, name, [])
    view = table_view(target.view)
    eventually(lambda: is_live(api, target), f"{name} g{target.generation} answers", START_S)
    emit(deployment, name, SOURCES)
    touched = {patch.key for source in SOURCES for patch in reader.lift(view, source)}
    rows = reader.fold(view, SOURCES)
    with following(api, name) as events, loading(deployment, target):
        events.rows({key: rows.get(key) for key in touched})


@pytest.mark.complete
def test_the_end_of_the_process_is_told(deployment: Deployment, api: httpx.Client) -> None:
    load(deployment, "listings", [])
    port = free_port()
    process = deployment.start("api", HEADWATER_API_PORT=str(port))
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as other:
            eventually(lambda: is_ready(other), "the API is ready", START_S)
            with following(other, "listings") as events:
                process.terminate()
                assert events.read() == ("end", {"reason": "closing"})
        process.wait(240)
    finally:
        stop(process)
