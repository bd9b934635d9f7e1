"""Every public error has a meaning in HTTP, and nothing else in `api` knows a status by heart."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator

import pytest
from asgi_client import AppClient

from api.errors import MEANINGS, Meaning, meaning_of
from commands.errors import Rejected

PACKAGES = ("eventlog", "commands", "projections", "api")

NEVER_ANSWERED = {
    # the handler's
    "eventlog.Fenced",
    "eventlog.LeftOpen",
    "commands.MisplacedCommand",
    "commands.BadDecision",
    "commands.UnreadableSnapshot",
    "commands.UnreadableProcess",
    "commands.LocalStateError",
    # the projections' and replay's
    "projections.Unloadable",
    "projections.LedgerWentBack",
    "projections.PoisonEvent",
    "projections.BulkLoadFailed",
    "projections.LiveQueryFailed",
    "projections.RebuildFailed",
    "projections.LoaderDied",
    "projections.WrongCondition",
    "projections.NotPublished",
}
"""Errors that no request can meet, for they stay in another process; were one met, its root's meaning would hold."""


def public_errors() -> Iterator[type[Exception]]:
    for package in PACKAGES:
        module = importlib.import_module(f"{package}.errors")
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if issubclass(kind, Exception) and kind.__module__ == module.__name__:
                yield kind


@pytest.mark.parametrize("kind", list(public_errors()))
def test_every_public_error_has_a_meaning(kind: type[Exception]) -> None:
    name = f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}"
    assert (kind in MEANINGS) != (name in NEVER_ANSWERED), f"give {name} a Meaning in api/errors.py, or name it here"
    assert meaning_of(kind.__new__(kind)).status >= 400


def test_every_meaning_is_one_of_a_public_error() -> None:
    assert set(MEANINGS) <= set(public_errors())


def test_an_error_s_kin_share_its_meaning() -> None:
    class Stricter(Rejected):
        pass

    assert meaning_of(Stricter("no", "no")).status == 409
    assert meaning_of(OSError()).status == 500


@pytest.mark.parametrize("meaning", list(MEANINGS.values()))
def test_meanings_are_sound(meaning: Meaning) -> None:
    assert 400 <= meaning.status < 600
    assert meaning.code.replace("_", "").isalpha()
    assert (meaning.retry_after_s is not None) == (meaning.status in (503, 504))


def test_the_document_describes_every_route(client: AppClient) -> None:
    document = client.get("/openapi.json").json()
    sell = document["paths"]["/commands/listing.sell"]["post"]
    assert set(sell["responses"]) >= {"200", "201", "404", "409", "412", "413", "415", "422", "503", "504"}
    body = sell["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    assert document["components"]["schemas"][body]["properties"]["sold_for"]["maximum"] == 10_000_000_000
    assert sell["description"].startswith("Complete the sale")
    rows = document["paths"]["/views/listings"]["get"]
    assert {"city", "city.in", "price.gte", "sort", "cursor", "after"} <= {each["name"] for each in rows["parameters"]}
    row = document["components"]["schemas"]["listings.row"]["properties"]
    assert row["listing_id"] == {"type": "string"}
    assert "/views/listing_card" not in document["paths"]
    assert "/views/listing_search/search" in document["paths"]
    names = _references(document)
    assert names <= set(document["components"]["schemas"]), names
    assert client.get("/docs").status_code == 200


def _references(part: object) -> set[str]:
    if isinstance(part, dict):
        own = {part["$ref"].rpartition("/")[2]} if isinstance(part.get("$ref"), str) else set()
        return own.union(*(_references(each) for each in part.values()))
    return set().union(*(_references(each) for each in part)) if isinstance(part, list) else set()
