"""Mistakes in `readable_by` are named when the view is declared, with what to write instead."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import pytest

from headwater import (
    Claim,
    Lookup,
    Postgres,
    TableView,
    approximate_distinct,
    average,
    current,
    distinct,
    envelope,
    last,
)
from headwater.commands.errors import DeclarationError
from headwater.eventlog.capturing import Captured, Hashed, Source, Truncated
from headwater.projections.errors import ViewDeclarationError
from tests.support.own_rows import Written, note_sizes, notes


class Person(Captured, table="public.persons", key="id"):
    id: int
    mail: Annotated[str, Hashed()]
    name: Annotated[str, Truncated(3)]
    login: str


persons = Source(name="persons", tables=(Person,))

WRONG: list[tuple[Any, str]] = [
    ("owner", "does not say which claim a column equals: write readable_by="),
    (("owner",), "does not say which claim"),
    ({"owner": "sub"}, 'Claim("sub")'),
    ({"owner": Claim}, "which is no claim"),
    ({1: Claim("sub")}, "readable_by"),
    ({"nobody": Claim("sub")}, "which is not a column of this view: use one of note_id, owner"),
    ({"other": Claim("sub")}, 'which is looked up in "readers" when a row is read, not stored'),
    ({"mean": Claim("sub")}, "which is float: only text and integers are compared"),
    ({"at": Claim("sub")}, "which is time: only text and integers"),
    ({"about": Claim("sub")}, "which is computed from other values"),
    ({"exact": Claim("sub")}, "which is computed from other values"),
]


@pytest.mark.parametrize(("readable_by", "says"), WRONG, ids=str)
def test_a_mistake_is_named(readable_by: Any, says: str) -> None:
    with pytest.raises(ViewDeclarationError) as raised:
        TableView(
            name="wrong",
            key="note_id",
            columns={
                "owner": last({Written: "owner"}),
                "mean": average({Written: "size"}),
                "at": last({Written: envelope("time")}),
                "about": approximate_distinct({Written: "about"}),
                "exact": distinct({Written: "about"}),
            },
            stores=(Postgres(),),
            lookups=(Lookup("readers", on="owner", columns={"other": "owner"}),),
            readable_by=readable_by,
        )
    assert says in str(raised.value)


@pytest.mark.parametrize("column", ["mail", "name"])
def test_a_masked_column_is_not_the_owner(column: str) -> None:
    def people(read: str) -> TableView:
        return TableView(
            name="people",
            key="id",
            columns={"owner": current(Person, read)},
            stores=(Postgres(),),
            readable_by={"owner": Claim("sub")},
        )

    with pytest.raises(ViewDeclarationError, match=r"is captured as (Hashed|Truncated)\(\), which is not its value"):
        people(column)
    assert people("login").readable_by


def test_views_of_late_records_would_be_open() -> None:
    with pytest.raises(ViewDeclarationError, match="so that everybody could read them"):
        replace(note_sizes, realtime=False, late="keep")
    for readable_by in ({"size": Claim("n")}, {"id": Claim("sub")}):
        assert replace(note_sizes, readable_by=readable_by).readable_by == readable_by
    with pytest.raises(ViewDeclarationError, match="not a column of this view"):
        replace(note_sizes, readable_by={"nobody": Claim("sub")})


def test_an_empty_claim_is_refused() -> None:
    with pytest.raises(DeclarationError):
        Claim("")
    assert notes.named("other").readable_by == notes.readable_by
