"""The places of fields that a history names: `price`, `address.zip` in a nested model, `lines[].price` in a list."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from headwater.commands.declaring.steps import Convert, Default, Drop, Move, Rename, RenameType, Split, Step

Path = tuple[str, ...]
"""Names from the event on; ITEMS behind the name of a list."""

ITEMS: Final = "[]"


@lru_cache(maxsize=10_000)
def path_of(place: str) -> Path:
    """The path of a place as histories write it; raises ValueError. A name with a dot itself is in backquotes."""
    if len(place) > 2 and place[0] == place[-1] == "`":
        return (place[1:-1],)
    parts = place.split(".")
    if len(parts) == 1 and not place.endswith(ITEMS):
        return (place,)
    found: list[str] = []
    for part in parts:
        name = part
        while name.endswith(ITEMS):
            name = name.removesuffix(ITEMS)
        if not name or "[" in name or "]" in name:
            raise ValueError(f'"{place}" is no place of a field: write it like "address.zip" or "lines[].price"')
        found += [name, *[ITEMS] * ((len(part) - len(name)) // len(ITEMS))]
    if found[-1] == ITEMS:
        raise ValueError(f'"{place}" names no field of the items: write it like "{place}.price"')
    return tuple(found)


def place_of(path: Path) -> str:
    """The place as histories write it."""
    return "".join(part if part == ITEMS or not at else f".{part}" for at, part in enumerate(path))


def scoped(step: Step) -> tuple[Path, Step]:
    """The nested model that a step changes, () for the event itself, and the step with names from there on.

    Raises ValueError if the step names fields of different models, which only `move` can.
    """
    match step:
        case Rename():
            *scope, new = path_of(step.new)
            return tuple(scope), Rename(_beside(step.old, step.new, f'move("{step.old}", "{step.new}")'), new)
        case Default():
            *scope, name = path_of(step.field)
            return tuple(scope), Default(name, step.value)
        case Drop():
            *scope, name = path_of(step.field)
            return tuple(scope), Drop(name)
        case Convert():
            *scope, name = path_of(step.field)
            return tuple(scope), Convert(name, step.how)
        case Split():
            *scope, name = path_of(step.field)
            into = tuple(_beside(each, step.field, f'"{place_of((*scope, "first"))}"') for each in step.into)
            return tuple(scope), Split(name, into, step.at)
        case Move():
            return _scope_of_move(step)
        case RenameType():
            return (), step


def _beside(place: str, other: str, instead: str) -> str:
    """The last name of a place in the same model as another one."""
    path, beside = path_of(place), path_of(other)
    if path[:-1] != beside[:-1]:
        raise ValueError(f'"{place}" is not beside "{other}": write {instead}')
    return path[-1]


def _scope_of_move(step: Move) -> tuple[Path, Move]:
    old, new = path_of(step.old), path_of(step.new)
    if old[:-1] == new[:-1]:
        raise ValueError(f'move("{step.old}", "{step.new}") leaves the field in its place: write rename() for a name')
    common = 0
    for at, (one, other) in enumerate(zip(old, new, strict=False)):
        if one != other:
            break
        if one == ITEMS:
            common = at + 1
    scope, old, new = old[:common], old[common:], new[common:]
    if ITEMS in (*old, *new):
        raise ValueError(
            f'move("{step.old}", "{step.new}") leads into or out of the items of a list, of which there may be none or '
            "many: add a field with default()"
        )
    return scope, Move(".".join(old), ".".join(new))
