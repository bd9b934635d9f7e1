"""Where a type, or a field of a model, is marked as personal."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from headwater.commands.declaring.personal import Personal
from headwater.commands.errors import DeclarationError
from headwater.eventlog.personal.mark import has_mark


def is_personal(info: FieldInfo) -> bool:
    """Whether a field is marked as personal."""
    return has_mark(info)


def may_mention(model: type[BaseModel]) -> bool:
    """Whether the source of an annotation that cannot be read yet has a mark, as far as its text says."""
    annotations = (vars(base).get("__annotations__", {}) for base in model.__mro__)
    return any("Personal" in str(text) for annotation in annotations for text in annotation.values())


def personal_names(model: type[BaseModel]) -> frozenset[str]:
    """The names of a model's own fields that are personal: in records, they are texts.

    Fields whose types are defined later have no marks before.
    """
    _complete(model)
    return frozenset(name for name, info in model.model_fields.items() if is_personal(info))


def _complete(model: type[BaseModel]) -> None:
    if not model.__pydantic_complete__:
        model.model_rebuild(raise_errors=False)


def is_mark(mark: object) -> bool:
    """Whether this is the mark of a personal field; raises DeclarationError if its parentheses are missing."""
    if mark is Personal:
        raise DeclarationError("write Personal(), with parentheses")
    return isinstance(mark, Personal)


def mentions_personal(annotation: Any) -> bool:
    """Whether a type has a personal field, or a mark, anywhere inside."""
    return mentions(annotation, is_mark, set())


def mentions(annotation: Any, is_mark: Callable[[object], bool], seen: set[Any]) -> bool:
    """Whether a type has such a mark anywhere inside. seen: the classes that were looked into."""
    if isinstance(annotation, type) and not typing.get_args(annotation):
        if annotation in seen:
            return False
        seen.add(annotation)
        if issubclass(annotation, BaseModel):
            _complete(annotation)
            return any(
                any(is_mark(metadata) for metadata in info.metadata) or mentions(info.annotation, is_mark, seen)
                for info in annotation.model_fields.values()
            )
        if dataclasses.is_dataclass(annotation) or hasattr(annotation, "__total__") or hasattr(annotation, "_fields"):
            try:
                hints = typing.get_type_hints(annotation, include_extras=True)
            except Exception:  # noqa: BLE001 - an annotation may be any expression; pydantic refuses it
                return False
            return any(mentions(hint, is_mark, seen) for hint in hints.values())
        return False
    if any(is_mark(metadata) for metadata in getattr(annotation, "__metadata__", ())):
        return True
    for name in ("__value__", "__supertype__"):  # of type aliases, and of NewType
        if (inner := getattr(annotation, name, None)) is not None and mentions(inner, is_mark, seen):
            return True
    return any(mentions(argument, is_mark, seen) for argument in typing.get_args(annotation) if not is_mark(argument))
