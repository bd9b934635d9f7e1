"""The shape of a state: it changes with what is valid, not with what documents it, and stored snapshots keep theirs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, create_model

from headwater.commands.codec import has_shape, read_snapshot, write_snapshot
from headwater.commands.declaring.aggregate import Aggregate, Command, Event
from headwater.commands.errors import UnreadableSnapshot
from headwater.samples.listings.domain import listing


class Named(Event, type="shaped.named"):
    shaped_id: str


class Name(Command, type="shaped.name"):
    shaped_id: str


def decide(command: Name, state: Any) -> Sequence[Event]:
    return [Named(shaped_id=command.shaped_id)]


def evolve(state: Any, event: Named) -> Any:
    return state


def shaped(state: type[BaseModel]) -> Aggregate[Any]:
    return Aggregate(name="shaped", id_field="shaped_id", initial=state(), decide=decide, evolve=evolve)


class Part(BaseModel):
    size: int = 0


def state(name: str = "State", doc: str | None = None, **fields: Any) -> type[BaseModel]:
    return create_model(name, __config__=ConfigDict(frozen=True), __doc__=doc, **fields)


PLAIN = state(title=(str, ""), parts=(list[Part], []))
DOCUMENTED = state(
    "Renamed",
    "Explained.",
    title=(Annotated[str, Field(description="What it is called.", title="Name", examples=["a"])], ""),
    parts=(Annotated[list[Part], Field(description="From left to right.", deprecated=True)], []),
)


def test_what_only_documents_a_state_does_not_change_its_shape() -> None:
    assert shaped(PLAIN).shape == shaped(DOCUMENTED).shape
    written = write_snapshot(shaped(PLAIN), PLAIN(), 3)
    assert read_snapshot(shaped(DOCUMENTED), written)[1] == 3
    assert has_shape(shaped(DOCUMENTED), written)


@pytest.mark.parametrize(
    "other",
    [
        state(description=(str, ""), parts=(list[Part], [])),  # a field may be called like a word of JSON schema
        state(title=(str, "x"), parts=(list[Part], [])),
        state(title=(str, ""), parts=(list[int], [])),
        state(title=(Annotated[str, Field(max_length=5)], ""), parts=(list[Part], [])),
        state(title=(str, ""), parts=(list[Part], []), examples=(int, 0)),
    ],
)
def test_another_schema_is_another_shape(other: type[BaseModel]) -> None:
    assert shaped(PLAIN).shape != shaped(other).shape
    written = write_snapshot(shaped(PLAIN), PLAIN(), 3)
    assert not has_shape(shaped(other), written)
    with pytest.raises(UnreadableSnapshot):
        read_snapshot(shaped(other), written)


@pytest.mark.parametrize("value", [b"{", b"[]", b"{}", b'{"shape":1}', b'{"version":1,"state":{}}'])
def test_what_is_no_snapshot_has_no_shape(value: bytes) -> None:
    assert not has_shape(listing, value)
