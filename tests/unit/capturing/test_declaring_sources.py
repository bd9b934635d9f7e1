"""Declaring captured tables and sources: what a declaration means, and what is refused."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from types import new_class
from typing import Annotated, Any, Optional
from uuid import UUID

import pytest
from pydantic import BaseModel, Field

from headwater.eventlog.capturing import Captured, Hashed, Kind, Source, SourceRegistry, Truncated
from headwater.eventlog.capturing.errors import SourceDeclarationError, UnknownSource
from headwater.eventlog.errors import EventLogError


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


class Address(BaseModel):
    city: str


def declare(
    fields: Mapping[str, Any] | None = None, key: str | tuple[str, ...] = "id", table: str = "public.things"
) -> type[Captured]:
    """A captured class with these fields, beside its key `id`."""
    body = {"__module__": __name__, "__annotations__": {"id": int, **(fields or {})}}
    declared = new_class("Thing", (Captured,), {"table": table, "key": key}, lambda named: named.update(body))
    assert issubclass(declared, Captured)
    return declared


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        (str, Kind.TEXT),
        (int, Kind.INTEGER),
        (float, Kind.FLOAT),
        (bool, Kind.BOOLEAN),
        (Decimal, Kind.DECIMAL),
        (datetime, Kind.TIMESTAMP),
        (date, Kind.DATE),
        (time, Kind.TIME),
        (timedelta, Kind.INTERVAL),
        (UUID, Kind.UUID),
        (bytes, Kind.BYTES),
        (dict[str, Any], Kind.JSON),
        (Address, Kind.JSON),
        (Colour, Kind.ENUM),
        (list[int], Kind.ARRAY),
    ],
)
def test_an_annotation_says_what_a_column_holds_and_whether_it_may_be_null(annotation: Any, kind: Kind) -> None:
    table = declare({"plain": annotation, "optional": annotation | None, "long": Optional[annotation]})  # noqa: UP045
    assert [(column.kind, column.nullable) for column in table.columns.values()] == [
        (Kind.INTEGER, False),
        (kind, False),
        (kind, True),
        (kind, True),
    ]


def test_an_array_knows_its_items_and_an_enum_its_values() -> None:
    table = declare({"numbers": list[Decimal | None], "colour": Colour})
    assert table.columns["numbers"].item is Kind.DECIMAL
    assert table.columns["colour"].choices == ("red", "blue")


def test_a_default_is_the_value_of_records_that_lack_the_column() -> None:
    class Thing(Captured, table="public.things", key="id"):
        id: int
        stock: int = 3
        colour: Colour = Colour.BLUE
        note: str | None
        name: str

    defaults = {name: (column.required, column.default) for name, column in Thing.columns.items()}
    assert defaults == {
        "id": (True, None),
        "stock": (False, 3),
        "colour": (False, "blue"),
        "note": (False, None),
        "name": (True, None),
    }


def test_an_alias_is_the_name_of_the_column() -> None:
    class Thing(Captured, table="public.things", key="id"):
        id: int
        key_: Annotated[str, Field(alias="key")]

    assert tuple(Thing.columns) == ("id", "key")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"price": "Unknown"}, r'"price".*import or define it before'),
        ({"price": complex}, r'"price".*complex.*write str, int'),
        ({"price": int | str}, r'"price".*write str, int'),
        ({"price": list}, r'"price".*write str, int'),
        ({"mood": enum.Enum("Mood", {"GOOD": 1})}, r'"mood".*not text'),
        ({"age": Annotated[int, Hashed()]}, r'"age".*not text'),
        ({"name": Annotated[str, Hashed]}, r'"name".*Hashed\(…\) with parentheses'),
        ({"name": Annotated[str, Hashed(), Truncated(3)]}, r'"name".*choose one'),
        ({"name": Annotated[str, Truncated(0)]}, r'"name".*leave the column out'),
        ({"a b": str}, r'"a b".*use A-Z'),
        ({"table": str}, r'"table".*alias="table"'),
        ({"key": str}, r'"key".*alias="key"'),
    ],
)
def test_a_column_that_cannot_be_captured_is_refused_with_what_to_write(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(SourceDeclarationError, match=said):
        declare(fields)


def test_defaults_that_no_record_could_hold_are_refused() -> None:
    with pytest.raises(SourceDeclarationError, match=r'"tags".*default_factory'):

        class Listed(Captured, table="public.things", key="id"):
            id: int
            tags: list[str] = Field(default_factory=list)

    with pytest.raises(SourceDeclarationError, match=r'"at".*default that is not text'):

        class Timed(Captured, table="public.things", key="id"):
            id: int
            at: datetime = datetime(2026, 1, 1, tzinfo=UTC)

    with pytest.raises(SourceDeclarationError, match=r'"name".*default None'):

        class Named(Captured, table="public.things", key="id"):
            id: int
            name: str = None  # type: ignore[assignment]


def test_a_decimal_knows_its_digits_however_they_are_written() -> None:
    class Priced(Captured, table="public.priced", key="id"):
        id: int
        price: Annotated[Decimal, Field(max_digits=12, decimal_places=2)]
        inner: Annotated[Decimal, Field(max_digits=12, decimal_places=2)] | None
        outer: Annotated[Decimal | None, Field(max_digits=12, decimal_places=2)]
        plain: Decimal = Field(max_digits=12, decimal_places=2, alias="Plain", default=Decimal("1.50"))
        bare: Decimal
        half: Annotated[Decimal, Field(max_digits=12)]
        day: date = date(2026, 1, 31)

    found = {name: column.digits for name, column in Priced.columns.items()}
    money = (12, 2)
    assert found == dict.fromkeys(("price", "inner", "outer", "Plain"), money) | dict.fromkeys(
        ("id", "bare", "half", "day")
    )
    assert [Priced.columns[name].default for name in ("Plain", "day")] == ["1.50", "2026-01-31"]


@pytest.mark.parametrize("default", [Decimal("1.234"), "12345678901", "x", Decimal("NaN"), 1e11])
def test_a_default_that_its_column_cannot_have_is_refused(default: Any) -> None:
    with pytest.raises(SourceDeclarationError, match=r'"price".*has the default .*, which is none of its type'):

        class Priced(Captured, table="public.priced", key="id"):
            id: int
            price: Annotated[Decimal, Field(max_digits=12, decimal_places=2)] = default

    with pytest.raises(SourceDeclarationError, match=r'"day".*has the default .2026-02-30., which is none'):

        class Dated(Captured, table="public.dated", key="id"):
            id: int
            day: date = "2026-02-30"  # type: ignore[assignment]


@pytest.mark.parametrize("table", ["customers", "a.b.c", 'public."Things"', "public.kunden-liste", "", "public.größe"])
def test_a_table_is_written_with_its_schema(table: str) -> None:
    with pytest.raises(SourceDeclarationError, match=r"public\.customers"):
        declare(table=table)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ((), "has no key"),
        ("number", "not declared"),
        (("id", "id"), "twice"),
        ("note", "without | None"),
        ("ratio", "without | None"),
        ("secret", "without | None and a mask"),
    ],
)
def test_a_key_has_columns_whose_values_identify_a_row(key: Any, said: str) -> None:
    fields = {"note": str | None, "ratio": float, "secret": Annotated[str, Hashed()]}
    with pytest.raises(SourceDeclarationError) as refused:
        declare(fields, key=key)
    assert said in str(refused.value)


def test_a_source_names_the_topics_of_its_tables() -> None:
    thing, part = declare(), declare(table="stock.parts")
    with pytest.raises(SourceDeclarationError, match="belongs to no source"):
        thing.topic()
    source = Source(name="shop", tables=(thing, part))
    assert (thing.topic(), part.topic()) == ("cdc.shop.public.things", "cdc.shop.stock.parts")
    assert (source.database, source.salt, source.hashes) == ("HEADWATER_SHOP_DATABASE", "HEADWATER_SHOP_SALT", False)
    assert Source(name="erp", tables=(declare({"name": Annotated[str, Hashed()]}),)).hashes
    assert source.table("stock.parts") is part
    with pytest.raises(SourceDeclarationError, match=r'no table "parts".*public\.things, stock\.parts'):
        source.table("parts")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"name": "Shop"}, "not the name of a source"),
        ({"name": "s" * 25}, "at most 24"),
        ({"database": "postgresql://headwater:secret@db/shop"}, "environment variable"),
        ({"heartbeat_ms": 10}, "100 or more"),
        ({"tables": ()}, "no tables"),
        ({"tables": (Captured,)}, "not a captured table"),
        ({"tables": (int,)}, "not a captured table"),
    ],
)
def test_a_source_that_is_declared_wrongly_is_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(SourceDeclarationError, match=said):
        Source(**({"name": "shop", "tables": (declare(),)} | arguments))


def test_a_table_is_captured_once_and_belongs_to_one_source() -> None:
    thing = declare()
    for tables in ((thing, declare(table="public.Things")), (thing, thing)):
        with pytest.raises(SourceDeclarationError, match="the same table"):
            Source(name="shop", tables=tables)
    Source(name="shop", tables=(thing,))
    with pytest.raises(SourceDeclarationError, match='belongs to source "shop" already'):
        Source(name="other", tables=(thing,))


def test_a_deployment_has_the_sources_of_its_modules_and_no_two_with_one_name() -> None:
    registry = SourceRegistry.load(("shop",))
    assert [table.table for table in registry.source("shop").tables] == [
        "public.customers",
        "public.products",
        "public.orders",
        "public.order_lines",
    ]
    assert not SourceRegistry.load(("listings",)).sources
    with pytest.raises(UnknownSource, match=r'no source "erp": it has shop'):
        registry.source("erp")
    one, other = (Source(name="shop", tables=(declare(),)) for _ in range(2))
    with pytest.raises(SourceDeclarationError, match='"a" and "b" both declare the source "shop"'):
        SourceRegistry([("a", one), ("b", other)])
    assert issubclass(SourceDeclarationError, EventLogError)
