"""Observations with personal fields: what a record has, what is refused, and what an erasure leaves."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated

import orjson
import pytest
from pydantic import field_validator

from headwater import Observation, Personal
from headwater.commands.declaring.observation import ObservationRegistry, sealed_fields, to_entry
from headwater.commands.errors import DeclarationError, MalformedObservation
from headwater.eventlog.errors import KeysUnavailable
from headwater.eventlog.personal.memory import MemoryKeys
from tests.support.memory_vault import memory_vault
from tests.support.personal_visits import Rang, Visited

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
REGISTRY = ObservationRegistry([("here", Visited), ("here", Rang)])
DATA = {
    "visitor_id": "V1",
    "room": "R1",
    "name": "Ada Canary",
    "age": 36,
    "companions": [{"person_id": "V2", "phone": "+44-canary-1"}],
}


@pytest.fixture
def keys() -> Iterator[MemoryKeys]:
    with memory_vault() as found:
        yield found


def report(**changes: object) -> bytes:
    return orjson.dumps({"id": "1", "source": "door", "data": DATA | changes})


def record(body: bytes) -> bytes:
    value = to_entry(REGISTRY.read("visited", body), NOW, None, None).value
    assert value is not None
    return value


@pytest.mark.usefixtures("keys")
def test_a_record_has_sealed_texts_and_is_opened_as_it_was() -> None:
    value = record(report())
    assert b"anary" not in value
    assert b'"age":36' not in value
    data = orjson.loads(value)["data"]
    assert (data["visitor_id"], data["room"]) == ("V1", "R1")
    fields = sealed_fields(Visited)
    assert fields is not None
    assert fields.opened(data) == DATA


@pytest.mark.usefixtures("keys")
def test_a_report_that_is_sent_again_has_the_same_data() -> None:
    assert orjson.loads(record(report()))["data"] == orjson.loads(record(report()))["data"]


def test_one_person_is_erased_and_the_other_is_not(keys: MemoryKeys) -> None:
    data = orjson.loads(record(report()))["data"]
    keys.erase("V1")
    fields = sealed_fields(Visited)
    assert fields is not None
    opened = fields.opened(data)
    assert (opened["name"], opened["age"]) == ("(erased)", None)
    assert opened["companions"] == DATA["companions"]


@pytest.mark.usefixtures("keys")
def test_a_value_that_belongs_to_nobody_is_refused() -> None:
    with pytest.raises(MalformedObservation) as refused:
        REGISTRY.read("visited", report(visitor_id=""))
    assert refused.value.details[0]["loc"] == ("data",)
    assert "Canary" not in str(refused.value)


def test_without_keys_only_observations_with_personal_fields_are_refused(keys: MemoryKeys) -> None:
    keys.is_away = True
    with pytest.raises(KeysUnavailable):
        REGISTRY.read("visited", report())
    rang = orjson.dumps({"id": "1", "source": "door", "data": {"room": "R1"}})
    assert REGISTRY.read("rang", rang).data == Rang(room="R1")


class Strict(Observation, type="strict"):
    who: str
    secret: Annotated[str | None, Personal(of="who")]

    @field_validator("secret")
    @classmethod
    def fails(cls, value: str | None) -> str | None:
        if value is not None:
            raise KeyError(value)
        return value


@pytest.mark.usefixtures("keys")
def test_a_validator_that_fails_does_not_say_the_value() -> None:
    body = orjson.dumps({"id": "1", "source": "door", "data": {"who": "V1", "secret": "canary"}})
    with pytest.raises(RuntimeError) as failed:
        ObservationRegistry([("here", Strict)]).read("strict", body)
    assert "canary" not in str(failed.value)
    assert failed.value.__cause__ is None


def test_whose_a_value_is_must_be_declared() -> None:
    class Seen(Observation, type="seen"):
        seen_id: str
        who: Annotated[str | None, Personal()]

    with pytest.raises(DeclarationError, match='field "who" of "seen" does not say whose it is: write Personal'):
        ObservationRegistry([("here", Seen)])


def test_a_report_that_is_sent_again_after_an_erasure_makes_no_key(keys: MemoryKeys) -> None:
    """It says when it was observed; of one that does not, nobody knows that it is an earlier one."""
    body = orjson.dumps({"id": "1", "source": "door", "time": "2026-01-02T03:04:05Z", "data": DATA})
    first = orjson.loads(record(body))["data"]
    keys.erase("V1")
    again = orjson.loads(record(body))["data"]
    assert [key.erased is None for key in keys.keys_of("V1")] == [False]
    assert b"anary 1" not in record(body)
    fields = sealed_fields(Visited)
    assert fields is not None
    assert (again["room"], again["companions"]) == (first["room"], first["companions"]), "the other is not erased"
    assert fields.opened(again) == fields.opened(first)
    record(report())
    assert [key.erased is None for key in keys.keys_of("V1")] == [False, True]
    assert fields.opened(orjson.loads(record(body))["data"])["name"] == "(erased)"
