"""What a field holds in one version of an event: its kind, and what is inside a nested model or a list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from pydantic import BaseModel

from headwater.commands.declaring.field_kinds import FieldKind, Inside, field_kinds, insides
from headwater.commands.declaring.personal_marks import is_personal
from headwater.commands.declaring.steps import Kind

Shapes = Mapping[str, "Shape"]
"""By the name of each field in JSON."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a field holds.

    kind: see FieldKind; None if it is not known, because the field was dropped later.
    nullable: whether it may be null, as far as that is known.
    is_personal: records have a sealed text.
    fields: of a nested model. items: of a list. They are read when they are needed, because models may be recursive.
    is_certain: false of a model that was dropped later, which a move may have made.
    """

    kind: Kind | None = None
    nullable: bool = True
    is_personal: bool = False
    fields: Callable[[], Shapes] | None = None
    items: Callable[[], Shape] | None = None
    is_certain: bool = True


UNKNOWN: Final = Shape()


def object_of(fields: Shapes, of: Shape | None = None) -> Shape:
    """A nested model with these fields, else as `of`."""
    return replace(Shape(object, nullable=False) if of is None else of, fields=lambda: fields)


def shapes_of(model: type[BaseModel]) -> dict[str, Shape]:
    """What each field of a model holds; if it names a type that is not defined yet, not what is inside."""
    kinds, inside = field_kinds(model), insides(model)
    personal = {info.alias or name for name, info in model.model_fields.items() if is_personal(info)}
    return {name: _shape(kind, inside.get(name), is_personal=name in personal) for name, kind in kinds.items()}


def _shape(kind: FieldKind, inside: Inside | None, *, is_personal: bool = False) -> Shape:
    model = None if inside is None else inside.model
    items = None if inside is None else inside.items
    return Shape(
        kind.kind,
        kind.nullable,
        is_personal,
        None if model is None else partial(shapes_of, model),
        None if items is None else partial(_items, items),
    )


def _items(items: Callable[[], Inside]) -> Shape:
    inside = items()
    return _shape(inside.kind, inside)
