"""Every public error has a meaning in HTTP, and nothing else in `api` knows a status by heart."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import jsonschema_rs
import orjson
import pytest

from headwater.api import errors
from headwater.api.errors import BadHeader, BadParameter
from headwater.api.openapi.components import MEMBERS
from headwater.api.problems import MEANINGS, faults_of, meaning_of, members_of
from headwater.commands import errors as commands
from headwater.commands.errors import Rejected
from headwater.eventlog.errors import LogUnavailable
from headwater.projections import errors as projections
from tests.unit.api.asgi_client import AppClient

MISSING = {"loc": ("a", 0, "b"), "msg": "is needed", "type": "missing"}
FAULT = {"detail": "is needed", "pointer": "#/a/0/b"}
SORT = {"detail": "is wrong", "parameter": "sort"}
IF_MATCH = {"detail": "is wrong", "header": "If-Match"}
PACKAGES = ("eventlog", "commands", "projections", "api")

NEVER_ANSWERED = {
    # the handler's
    "eventlog.Fenced",
    "eventlog.LeftOpen",
    "eventlog.RecordsLost",
    "commands.MisplacedCommand",
    "commands.BadDecision",
    "commands.BadReaction",
    "commands.UnreadableSnapshot",
    "commands.UnreadableProcess",
    "commands.LocalStateError",
    # the projections' and replay's
    "projections.Unloadable",
    "projections.CannotLoad",
    "projections.LedgerWentBack",
    "projections.PoisonEvent",
    "projections.RefusedPatch",
    "projections.BulkLoadFailed",
    "projections.LiveQueryFailed",
    "projections.StreamQueryFailed",
    "projections.RebuildFailed",
    "projections.RollbackFailed",
    "projections.LoaderDied",
    "projections.CannotCatchUp",
    "projections.CannotPublish",
    "projections.NotPublished",
    "projections.StillNamed",
    "projections.StillUsed",
    "projections.KeysAway",
    "projections.StoreLocked",
    "projections.TakenOver",
}
"""Errors that no request can meet, for they stay in another process; were one met, its root's meaning would hold."""


def public_errors() -> Iterator[type[Exception]]:
    for package in PACKAGES:
        module = importlib.import_module(f"headwater.{package}.errors")
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if issubclass(kind, Exception) and kind.__module__ == module.__name__:
                yield kind


def test_every_public_error_has_a_meaning() -> None:
    for kind in public_errors():
        name = f"{kind.__module__.split('.')[1]}.{kind.__qualname__}"
        assert (kind in MEANINGS) != (name in NEVER_ANSWERED), f"give {name} a Meaning, or name it"
        assert meaning_of(kind.__new__(kind)).status >= 400, name


def test_every_meaning_is_one_of_a_public_error() -> None:
    assert set(MEANINGS) <= set(public_errors())


def test_an_error_s_kin_share_its_meaning() -> None:
    class Stricter(Rejected):
        pass

    assert meaning_of(Stricter("no", "no")).status == 409
    assert meaning_of(OSError()).status == 500


def test_meanings_are_sound() -> None:
    for meaning in MEANINGS.values():
        assert 400 <= meaning.status < 600, meaning
        assert meaning.code.replace("_", "").isalpha(), meaning
        assert (meaning.retry_after_s is not None) == (meaning.status in (429, 503, 504)), meaning


def test_every_member_is_described_and_every_description_is_of_a_member() -> None:
    listed = {name for meaning in MEANINGS.values() for name in meaning.members}
    assert listed | {"error_id"} == set(MEMBERS)


PAUSED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
EXAMPLES: list[tuple[Exception, dict[str, Any]]] = [
    (errors.UnknownHost("a.example"), {"host": "a.example"}),
    (commands.UnfitClaim("account.open", "owner", "sub"), {"claim": "sub", "field": "owner"}),
    (errors.Forbidden("views:listings"), {"scope": "views:listings"}),
    (errors.MalformedTarget("query", "is not UTF-8"), {"part": "query"}),
    (BadParameter("sort", "is wrong", ("a", "b")), {"parameter": "sort", "known": ("a", "b"), "errors": [SORT]}),
    (BadHeader("If-Match", "is wrong"), {"header": "If-Match", "errors": [IF_MATCH]}),
    (errors.MalformedJson("trailing comma", 1, 7), {"line": 1, "column": 7}),
    (errors.MalformedLine(3, [MISSING]), {"line": 3, "errors": [FAULT], "error_count": 1}),
    (errors.TooComplex("values", 9), {"limit": 9}),
    (errors.TooManyRequests("at once: 9", 9), {"limit": 9}),
    (errors.Overloaded("reads", 9), {"limit": 9}),
    (errors.BodyIncomplete(9), {"timeout_s": 9}),
    (errors.UnsupportedMedia("text/plain"), {"actual": "text/plain", "expected": "application/json"}),
    (errors.UnknownAggregate("x", ["b", "a"]), {"aggregate": "x", "known": ("a", "b")}),
    (errors.StreamMissing("listing/L1", 7), {"stream": "listing/L1", "version": 7}),
    (errors.RowMissing("listings", "L1"), {"view": "listings", "key": "L1"}),
    (errors.UnknownSource("x", ["b", "a"]), {"source": "x", "known": ("a", "b")}),
    (
        errors.SourceNotCaughtUp("shop", "shop@0/2", "shop@0/1", 50, None),
        {"source": "shop", "after": "shop@0/2", "reached": "shop@0/1", "waited_ms": 50},
    ),
    (errors.ReceiptMissing("c"), {"command_id": "c"}),
    (errors.NotFollowed("per_town", "town"), {"view": "per_town"}),
    (errors.NeverChanges("then", "listings"), {"view": "then", "source": "listings"}),
    (errors.MadeEarlier("then", "v", 1, 2), {"view": "then", "source": "v", "version": 1, "declared": 2}),
    (errors.TooManyFollowers(9), {"limit": 9}),
    (errors.NoSearch("listings"), {"view": "listings"}),
    (errors.KeyOnly("card", "valkey"), {"view": "card", "store": "valkey"}),
    (errors.NotCaughtUp("v", "3:4", 50, None), {"view": "v", "after": "3:4", "waited_ms": 50, "lag_events": None}),
    (errors.ViewPaused("v", "3:4", PAUSED), {"view": "v", "after": "3:4", "since": "2026-01-02T03:04:05+00:00"}),
    (commands.Rejected("sold", "it is sold"), {"code": "sold"}),
    (commands.UnknownCommand("x", ["a"]), {"command_type": "x", "known": ("a",)}),
    (
        commands.MalformedCommand("x", [MISSING], 7),
        {"command_type": "x", "errors": [FAULT], "error_count": 7},
    ),
    (commands.UnknownObservation("x", ["a"]), {"observation_type": "x", "known": ("a",)}),
    (
        commands.MalformedObservation("x", [MISSING]),
        {"observation_type": "x", "errors": [FAULT], "error_count": 1},
    ),
    (commands.WrongVersion("listing/L1", 3, 7), {"stream": "listing/L1", "expected": 3, "actual": 7}),
    (commands.IdempotencyKeyReused("c"), {"command_id": "c"}),
    (commands.DecideFailed("c", "oops"), {"command_id": "c"}),
    (commands.UnreadableCommand("c", "oops"), {"command_id": "c"}),
    (commands.TooLarge(9, 8), {"size_bytes": 9, "limit_bytes": 8}),
    (commands.Unanswered("c", "a/b", 10), {"command_id": "c", "stream": "a/b", "timeout_s": 10}),
    (commands.EarlierReceiptsUnread("c"), {"command_id": "c"}),
    (commands.BrokenStream("listing/L1", 3, 7), {"stream": "listing/L1", "expected": 3, "actual": 7}),
    (projections.UnknownView("x", ["a"]), {"view": "x", "known": ("a",)}),
    (projections.StoreUnavailable("valkey", "no answer"), {"store": "valkey"}),
    (projections.LacksRight("PostgreSQL", "no"), {"store": "PostgreSQL"}),
    (projections.GenerationMissing("v"), {"view": "v", "generation": None}),
    (LogUnavailable("appending", "no broker"), {}),
]


def test_a_problem_has_the_members_that_are_listed_for_it() -> None:
    fits = jsonschema_rs.validator_for({"type": "object", "properties": MEMBERS, "additionalProperties": False})
    for error, members in EXAMPLES:
        assert members_of(error) == members
        assert set(members) == set(meaning_of(error).members), error
        fits.validate(orjson.loads(orjson.dumps(members)))


def test_every_error_with_members_is_among_the_examples() -> None:
    assert {kind for kind, meaning in MEANINGS.items() if meaning.members} <= {type(error) for error, _ in EXAMPLES}


def test_an_attribute_more_is_no_member_more() -> None:
    class Richer(Rejected):
        def __init__(self) -> None:
            super().__init__("no", "no")
            self.more = "m"

    assert members_of(Richer()) == {"code": "no"}


@pytest.mark.parametrize(
    ("detail", "document", "found"),
    [
        ({"loc": ("a", "b/c~ %ü"), "type": "missing"}, {"a": {}}, "#/a/b~1c~0%20%25%C3%BC"),
        ({"loc": ("pay", "card", "number"), "type": "int_type"}, {"pay": {"number": "x"}}, "#/pay/number"),
        ({"loc": ("pay", "card", "number"), "type": "missing"}, {"pay": {}}, "#/pay/number"),
        ({"loc": ("lines", 1, "function-after[check()]"), "type": "value_error"}, {"lines": [1, 2]}, "#/lines/1"),
        ({"loc": ("names", "é\ud800", "[key]"), "type": "string_type"}, {"names": {"é\ud800": 1}}, "#/names/%C3%A9%3F"),
        ({"loc": (), "type": "json_invalid"}, {"a": 1}, "#"),
        ({"loc": ("a", "b"), "type": "int_type"}, None, "#/a/b"),
    ],
)
def test_a_pointer_names_a_place_in_the_document(detail: dict[str, Any], document: Any, found: str) -> None:
    error = commands.MalformedCommand("x", [{"msg": "wrong", **detail}])
    assert faults_of(error, document) == [{"detail": "wrong", "pointer": found}]


def test_a_branch_of_a_union_is_no_place_in_the_body(client: AppClient) -> None:
    body = {"listing_id": "L1", "sold_for": "x"}
    problem = client.post("/commands/listing.sell", json=body).json()
    assert [error["pointer"] for error in problem["errors"]] == ["#/sold_for"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/views"),
        ("GET", "/health/live"),
        ("GET", "/health/ready"),
        ("GET", "/receipts/c-1?stream=listing/L1"),
        ("GET", "/receipts?command_id=c-1&stream=listing/L1"),
        ("GET", "/streams?stream=listing/L1"),
        ("GET", "/streams/listing/L1"),
        ("GET", "/streams/$all"),
        ("GET", "/views/listings/L1"),
        ("GET", "/views/listings/rows?key=L1"),
        ("GET", "/views/listings/changes"),
        ("POST", "/commands"),
        ("POST", "/commands/listing.sell"),
        ("POST", "/commands/unknown"),
        ("POST", "/observations/listing_viewed"),
        ("POST", "/observations/unknown"),
    ],
)
def test_a_parameter_that_a_path_does_not_have_is_refused(client: AppClient, method: str, path: str) -> None:
    answer = client.request(method, f"{path}{'&' if '?' in path else '?'}afterr=3:1042")
    assert (answer.status_code, answer.json().get("parameter")) == (422, "afterr")


@pytest.mark.parametrize("header", ["Idempotency-Key", "If-Match", "If-None-Match"])
@pytest.mark.parametrize(
    ("path", "media"),
    [
        ("/commands", "application/x-ndjson"),
        ("/observations/listing_viewed", "application/x-ndjson"),
        ("/observations/listing_viewed", "application/json"),
    ],
)
def test_a_header_about_one_command_is_refused_where_there_are_many(
    client: AppClient, path: str, media: str, header: str
) -> None:
    answer = client.post(path, content=b"{}\n", headers={"content-type": media, header: '"1"'})
    assert (answer.status_code, answer.json().get("header")) == (422, header)
