"""Random bodies for the contracts of a domain: each is one that its command accepts, whatever its fields are."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from headwater import Command
from headwater.commands.testing.drawing import bodies
from tests.support.seeds import examples


class Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    on: date
    share: Annotated[Decimal, Field(max_digits=4, decimal_places=3)]


class Book(Command, type="visit.book"):
    visit_id: str
    day: date
    at: datetime
    price: Decimal
    deposit: Annotated[Decimal, Field(gt=0, le=2, max_digits=5, decimal_places=2)]
    opens: time | None = None
    takes: timedelta | None = None
    who: UUID | None = None
    refund: Decimal | None = None
    parts: list[Part] = Field(default_factory=list)


@given(data=st.data())
@settings(max_examples=examples(100), deadline=None)
def test_every_body_is_one_that_its_command_accepts(data: Any) -> None:
    body = data.draw(bodies(Book, ("visit_id",), 0))
    assert Book.model_validate_json(orjson.dumps(body)).visit_id == "A0"
