"""Ids that are enums: the value is the id."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, IntEnum, StrEnum

import pytest
from pydantic import BaseModel, ConfigDict

from headwater import Aggregate, Command, Event, Postgres, TableView, count
from headwater.commands.codec import read_command
from headwater.commands.declaring.ids import id_text
from headwater.commands.declaring.registry import CommandRegistry
from headwater.testing import given, rows_of


class Region(Enum):
    EU = "eu"
    US = "us"


class Text(str, Enum):  # noqa: UP042 - its text is not its value, unlike that of StrEnum
    EU = "eu"


class Modern(StrEnum):
    EU = "eu"


class Number(IntEnum):
    EU = 7


class Opened(Event, type="shop.opened"):
    region: Region


class Open(Command, type="shop.open"):
    region: Region


class Shop(BaseModel):
    model_config = ConfigDict(frozen=True)
    opened: int = 0


def decide(command: Open, state: Shop) -> Sequence[Event]:
    return [] if state.opened else [Opened(region=command.region)]


def evolve(state: Shop, event: Opened) -> Shop:
    return Shop(opened=state.opened + 1)


shop = Aggregate(name="shop", id_field="region", initial=Shop(), decide=decide, evolve=evolve)
shops = TableView(name="shops", key="region", columns={"opened": count(Opened)}, stores=(Postgres(),))


@pytest.mark.parametrize(
    ("value", "text"),
    [(Region.EU, "eu"), (Text.EU, "eu"), (Modern.EU, "eu"), (Number.EU, "7"), ("eu", "eu"), (7, "7")],
)
def test_the_text_of_an_enum_is_its_value(value: object, text: str) -> None:
    assert id_text(value) == text


def test_the_stream_is_named_by_the_value() -> None:
    read = read_command(CommandRegistry([("here", shop)]).command("shop.open"), {"region": "eu"})
    assert (read.aggregate_id, read.stream) == ("eu", "shop/eu")


def test_the_command_is_decided_and_the_row_has_the_value_as_its_key() -> None:
    given(shop).when(Open(region=Region.EU)).then(Opened(region=Region.EU))
    given(shop, Opened(region=Region.EU)).when(Open(region=Region.EU)).then()
    assert list(rows_of(shops, Opened(region=Region.US))) == ["us"]
