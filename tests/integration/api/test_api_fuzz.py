"""The API keeps its own OpenAPI document's promises, whatever is sent: fuzzed with schemathesis, seeded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from headwater.api.requests.ndjson import MEDIA_TYPE as NDJSON
from headwater.projections.generations.registry.registry import Generations
from headwater.projections.registry import ViewRegistry
from headwater.projections.stores.postgres.store import PostgresStore
from headwater.projections.stores.store import Target
from tests.integration.api.api_deployment import START_S, Deployment, stop
from tests.support.domains import SHIPPED
from tests.support.seeds import examples, seed_of, some_of
from tests.support.waiting import eventually

CHECKED = [
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]
EXAMPLES = 2
"""For each operation, right and wrong; every run draws others, and a long run ten times as many."""
DOMAINS = 2
"""Beside `listings`: every run draws others, and a long run has all."""


@schemathesis.serializer(NDJSON)
def write_line(context: schemathesis.SerializationContext, value: Any) -> bytes:
    """What the document describes is one line."""
    return json.dumps(value).encode() + b"\n"


@schemathesis.deserializer(NDJSON)
def read_line(context: schemathesis.DeserializationContext, response: schemathesis.Response) -> Any:
    """The answer to the one line that was sent."""
    (line,) = response.content.splitlines()
    return json.loads(line)


@pytest.fixture(scope="module")
def modules() -> Sequence[str]:
    """Each domain has operations of the same kinds, and a long run sends to those of all."""
    return ("listings", *some_of([each for each in SHIPPED if each != "listings"], DOMAINS, 2))


@pytest.fixture(scope="module")
def handler(deployment: Deployment) -> Iterator[None]:
    process = deployment.start("commands")
    yield
    stop(process)


@pytest.fixture(scope="module")
def document(api: httpx.Client, deployment: Deployment, handler: None) -> Any:
    """The document of an API with a handler, and with views that are built but empty."""
    registry = Generations(deployment.stores.postgres, deployment.stores.environment)
    registry.prepare()
    store = PostgresStore(deployment.stores)
    for name in ("listings", "city_market", "streams"):
        view = ViewRegistry.load(["listings"]).views[name]
        generation = registry.begin(view, {}, {}, {})
        store.create(Target(view, generation.generation), {}, dict.fromkeys(range(4), 0))
        store.finish(Target(view, generation.generation))
        registry.swap(name, generation.generation)
    store.close()
    command = {"listing_id": "L1"}
    eventually(
        lambda: api.post("/commands/listing.withdraw", json=command).status_code == 409, "the handler answers", START_S
    )
    return schemathesis.openapi.from_url(str(api.base_url.join("/openapi.json")))


def check(case: schemathesis.Case[Any]) -> None:
    if case.query and "after" in case.query:
        case.query["wait_ms"] = 5  # most positions never come
    if case.path.endswith("/changes") and (case.query or {}).get("for_ms", 1000) not in range(1000):
        case.query = {**(case.query or {}), "for_ms": 5}  # it would go on for ever
    answer = case.call()
    case.validate_response(answer, checks=CHECKED)
    assert answer.status_code != 500, answer.text
    if answer.status_code >= 400 and not case.path.startswith("/health"):
        assert answer.headers["content-type"] == ["application/problem+json"]
        assert {"type", "title", "status", "detail", "instance"} <= set(answer.json())


def fuzz(operation: schemathesis.APIOperation[Any, Any, Any, Any], mode: schemathesis.GenerationMode) -> None:
    """Send some cases that fit the document, or that do not; raises what `check` raises, for a shortest case."""

    @seed(seed_of(1))
    @settings(
        max_examples=examples(EXAMPLES),
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case: schemathesis.Case[Any]) -> None:
        check(case)

    run()


@pytest.mark.complete
@pytest.mark.soak
def test_promises_are_kept(document: Any) -> None:
    operations = [found.ok() for found in document.get_all_operations()]
    named = {operation.path for operation in operations}
    assert {"/commands", "/observations/listing_viewed", "/streams/$all", "/views/listings/changes"} <= named
    assert {"/views/listings/rows", "/views/listing_search/search"} <= named
    for operation in operations:
        for mode in schemathesis.GenerationMode:
            try:
                fuzz(operation, mode)
            except Unsatisfiable:  # nothing about this operation can be sent wrongly
                continue
