"""Checks of the types of what aggregates, processes and messages are declared with; what to write is in each error."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel

from headwater.commands.errors import DeclarationError
from headwater.eventlog.declaring import meant, shown

_VALUES: Final = frozenset({"metadata", "default", "config", "expected"})
"""Members of a schema that hold what users wrote, and no schemas."""


def take_arguments(take: Callable[..., None], cls: type, named: Mapping[str, Any], known: Sequence[str]) -> None:
    """Hand the arguments of a class statement to the classes that it derives from.

    known: those that were taken already. Raises DeclarationError if there are others that no class takes.
    """
    try:
        take(**named)
    except TypeError as error:
        if not named:
            raise
        raise DeclarationError(f'"{cls.__name__}" has no {meant(next(iter(named)), known)}') from error


def quoted_value(value: object) -> str:
    """A text in double quotes, or another value as it is shown in a sentence."""
    return f'"{value}"' if isinstance(value, str) else shown(value)


def check_state(initial: object) -> None:
    """Raise ValueError unless it is a frozen model."""
    if isinstance(initial, type):
        raise ValueError(f"initial is {shown(initial)}, and not a state: write initial={initial.__name__}()")
    if not isinstance(initial, BaseModel):
        raise ValueError(f"initial is {shown(initial)}, and not a state: write the first state, of a frozen BaseModel")
    if not initial.model_config.get("frozen"):
        name = type(initial).__name__
        raise ValueError(f"its state is mutable: write model_config = ConfigDict(frozen=True) in {name}")
    check_round_trip(type(initial))


def check_round_trip(model: type[BaseModel]) -> None:
    """Raise ValueError if a model writes a field under another name than it reads, or one that it does not read.

    So do those inside it. Records are written and read under the names of fields, by several programs. A model whose
    types are not known yet is checked as far as they are.
    """
    complete = model.__pydantic_complete__ or model.model_rebuild(raise_errors=False)
    own = {
        name: {
            "name": name,
            "validation_alias": info.validation_alias or info.alias,
            "serialization_alias": info.serialization_alias,
            "serialization_exclude": info.exclude,
        }
        for name, info in model.model_fields.items()
    }
    for problem in _problems(model.__pydantic_core_schema__ if complete else own, model.__name__):
        raise ValueError(problem)


def _problems(schema: Any, owner: str, name: str = "") -> Iterator[str]:
    """What is wrong in a schema of pydantic's core. owner: the class around it. name: of the field."""
    if isinstance(schema, list | tuple):
        for item in schema:
            yield from _problems(item, owner, name)
    if not isinstance(schema, dict):
        return
    name = schema["name"] if isinstance(schema.get("name"), str) else name
    if schema.get("validation_alias") or schema.get("serialization_alias"):
        yield f'field "{name}" of "{owner}" has an alias, but records have its own name: remove it, or rename the field'
    if schema.get("serialization_exclude"):
        yield f'field "{name}" of "{owner}" is excluded from what is written, so it would be lost: remove exclude'
    if isinstance(kind := schema.get("cls"), type):
        owner = kind.__name__
        computed = kind.model_computed_fields if issubclass(kind, BaseModel) else {}
        if computed and getattr(kind, "model_config", {}).get("extra") == "forbid":
            yield f'"{owner}" would not read its computed field "{next(iter(computed))}" again: write a plain property'
    for inner, value in schema.items():
        if inner not in _VALUES:
            yield from _problems(value, owner, inner)


def check_function(name: str, function: object, arguments: Sequence[str]) -> None:
    """Raise ValueError unless it is a plain function with these arguments."""
    example = f"def {name}({', '.join(arguments)}): …"
    if isinstance(function, type) or not callable(function):
        raise ValueError(f"{name} is {shown(function)}, which is no function: write {example}")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise ValueError(f'{name} is asynchronous: write it with "def"')
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        raise ValueError(f"{name} must take {' and '.join(arguments)} ({error}): write {example}") from error
    except ValueError:  # Python does not know the arguments of some functions in C
        return


def annotations_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function; raises ValueError if one names what is not there."""
    try:
        return typing.get_type_hints(function)
    except Exception as error:  # an annotation may be any expression
        name = getattr(function, "__name__", "the function")
        raise ValueError(
            f'the annotations of "{name}" cannot be read ({error}): import what they name, not only for type checkers'
        ) from error


def members_of(annotation: Any) -> tuple[Any, ...]:
    """The types that an annotation allows: the members of a union, else itself."""
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    return typing.get_args(annotation) if is_union else (annotation,)


def check_classes(name: str, classes: object) -> None:
    """Raise ValueError unless it is a tuple or list of different classes."""
    if isinstance(classes, type) or not isinstance(classes, tuple | list):
        example = classes.__name__ if isinstance(classes, type) else "Placed"
        raise ValueError(f"{name}={shown(classes)} is no tuple of classes: write {name}=({example},)")
    for number, cls in enumerate(classes):
        if isinstance(cls, str) or not (isinstance(cls, type) or typing.get_origin(cls)):
            raise ValueError(f"{name} has {shown(cls)}, which is no class: write {name}=(Placed,)")
        if cls in classes[:number]:
            raise ValueError(f"{name} has {shown(cls)} twice: remove one")
