"""A mark that the API could not fill is refused when it is declared, instead of leaving its field open."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Optional

import pytest
from pydantic import BaseModel, Field

from headwater import Command
from headwater.commands.declaring.filled_fields import NOTHING, AcceptedAt, Claim, check_filled_fields, filled_fields
from headwater.commands.declaring.observation import Observation, ObservationRegistry
from headwater.commands.errors import DeclarationError

Owner = Annotated[str, Claim("sub")]


class Inner(BaseModel):
    owner: Owner


class Recursive(BaseModel):
    inner: Recursive | None = None
    value: int


def command(annotation: Any, **config: Any) -> type[Command]:
    base = type("Base", (Command,), {"model_config": config})
    return type("Open", (base,), {"__annotations__": {"owner": annotation}, "__module__": __name__}, type="thing.open")


@pytest.mark.parametrize(
    "annotation",
    [
        lambda: list[Owner],
        lambda: Optional[Owner],  # noqa: UP045 - the mark is not the field's own
        lambda: Owner | None,
        lambda: dict[str, Annotated[datetime, AcceptedAt()]],
        lambda: Inner,
        lambda: list[Inner],
        lambda: tuple[int, Inner | None],
        lambda: Annotated[str, Claim("sub"), Claim("tenant")],
        lambda: Annotated[datetime, AcceptedAt(), Claim("at")],
        lambda: Annotated[datetime, AcceptedAt],
        lambda: Annotated[str, Claim],
        lambda: Annotated[str, Claim("")],
        lambda: Annotated[str, Claim(7)],  # type: ignore[arg-type]
    ],
)
def test_a_mark_that_would_be_ignored_is_refused(annotation: Callable[[], Any]) -> None:
    with pytest.raises(DeclarationError, match=r"Claim|AcceptedAt"):
        filled_fields(command(annotation()))


def test_a_field_is_known_by_its_own_mark() -> None:
    assert filled_fields(command(Owner)).claims == {"owner": "sub"}
    assert filled_fields(command(Annotated[str | None, Claim("sub"), Field(max_length=9)])).claims == {"owner": "sub"}
    assert filled_fields(command(Annotated[datetime, AcceptedAt()])).times == ("owner",)
    assert filled_fields(command(Recursive)) is NOTHING


def test_observations_are_checked_too() -> None:
    kind = type("Seen", (Observation,), {"__annotations__": {"a": list[Owner]}, "__module__": __name__}, type="seen")
    with pytest.raises(DeclarationError, match="Claim"):
        ObservationRegistry([("here", kind)])


def test_the_marks_of_a_class_with_types_that_are_defined_later_are_not_forgotten() -> None:
    made: Any = {"Command": Command, "Annotated": Annotated, "Claim": Claim, "__name__": "later"}
    code = """
class Open(Command, type="thing.open"):
    thing_id: "Later"
    owner: "Annotated[Later, Claim('sub')]"
"""
    exec(code, made)  # noqa: S102
    kind = made["Open"]
    check_filled_fields(kind)
    with pytest.raises(DeclarationError, match="not defined"):
        filled_fields(kind)
    Later = str  # noqa: N806 - the name that the class uses
    kind.model_rebuild(_types_namespace={**made, "Later": Later})
    assert filled_fields(kind).claims == {"owner": "sub"}
