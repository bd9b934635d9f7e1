"""The fields that each version of an event had when it was first deployed, so that a change without a version is seen.

Recorded events keep the fields with which they were recorded. So if the fields of a class change, but not its version,
earlier events can no longer be read: neither by the handler nor by views.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from pydantic import BaseModel

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.field_kinds import field_kinds, insides, is_required
from headwater.commands.declaring.history import ITEMS
from headwater.eventlog.declaring import quoted
from headwater.eventlog.places import place_of

Fields = Mapping[str, str]
"""By name in JSON, the kind of each field, such as `int`, or `int | null`."""
NULLABLE: Final = " | null"


Path = tuple[str, ...]
"""Names from the event on; ITEMS behind the name of a list."""


class FirstFields(NamedTuple):
    """The fields that a version of an event had when it was first deployed.

    nested: likewise inside nested models and lists, by their places, such as `lines[].price`.
    """

    fields: Fields
    nested: Fields


Deployed = Mapping[tuple[str, int], FirstFields]
"""By type and version."""


def fields_of(event: type[Event]) -> dict[str, str]:
    """The fields of an event in its current version."""
    return {
        name: kind.kind.__name__ + ("" if is_required(event, name) else NULLABLE)
        for name, kind in field_kinds(event).items()
    }


def nested_fields_of(event: type[Event]) -> dict[str, str]:
    """The fields inside the nested models and lists of an event in its current version, by their places.

    A field that may be missing is written as one that may be null. Of a model inside itself, the first is enough.
    """
    return {written(path): kind for path, kind, _ in _nested(event)}


def written(path: Path) -> str:
    """The place as histories write it, such as `lines[].price`."""
    return "".join(part if part == ITEMS or not at else f".{part}" for at, part in enumerate(path))


def _nested(event: type[Event]) -> list[tuple[Path, str, type[BaseModel]]]:
    """Of each field inside a nested model or a list: its path, its kind, and the model that has it."""
    return [(path, kind, model) for path, kind, model in _fields(event) if len(path) > 1]


def _fields(
    model: type[BaseModel], path: Path = (), around: tuple[type[BaseModel], ...] = ()
) -> Iterator[tuple[Path, str, type[BaseModel]]]:
    """Likewise of the fields of a model, whose path is given, and of what is inside these."""
    kinds, around = field_kinds(model), (*around, model)
    for name, inside in insides(model).items():
        yield (*path, name), kinds[name].kind.__name__ + ("" if is_required(model, name) else NULLABLE), model
        place = (*path, name)
        while inside.model is None and inside.items is not None:
            inside, place = inside.items(), (*place, ITEMS)  # noqa: PLW2901
        if inside.model is not None and inside.model not in around:
            yield from _fields(inside.model, place, around)


def changes(events: Iterable[type[Event]], deployed: Deployed) -> dict[str, list[str]]:
    """By type of event, what is wrong with it, if its current version does not have the fields that it had."""
    by_field: dict[str, list[str]] = {}
    for event in events:
        before = deployed.get((event.type, event.version))
        if before is None:
            continue
        problem = _changed(before.fields, fields_of(event), event.version) or _changed_inside(before, event)
        if problem:
            place = place_of(event)
            by_field[event.type] = [f'event "{event.type}"' + (f" ({place})" if place else "") + f": {problem}"]
    return by_field


def _changed_inside(before: FirstFields, event: type[Event]) -> str:
    """Likewise for what is inside nested models and lists, as far as earlier events cannot be read with it."""
    nested = _nested(event)
    now = {written(path): kind for path, kind, _ in nested}
    strict = {_around(written(path)) for path, _, model in nested if model.model_config.get("extra") == "forbid"}
    known = before.fields.keys() | before.nested.keys()
    had = {place: kind for place, kind in before.nested.items() if place in now or _around(place) in strict}
    new = {place for place, kind in now.items() if not kind.endswith(NULLABLE) and _around(place) in known}
    return _changed(had, {place: kind for place, kind in now.items() if place in had or place in new}, event.version)


def _around(place: str) -> str:
    """The field that has the nested model, or the list of models, with this place."""
    return place.rpartition(".")[0].removesuffix(ITEMS)


def _changed(before: Fields, now: Fields, version: int) -> str:
    """What to write if the fields of the current version are others than those with which it was deployed."""
    added, removed = [name for name in now if name not in before], [name for name in before if name not in now]
    others = [name for name in now if name in before and not _reads(before[name], now[name])]
    parts, steps = list[str](), list[str]()
    if added:
        parts.append(f"{quoted(added)} {_was(added)} added")
    if removed:
        parts.append(f"{quoted(removed)} {_was(removed)} removed")
    renamed = _renamed(before, now, added, removed)
    steps += [f'rename("{old}", "{new}")' for old, new in renamed.items()]
    steps += [f'default("{name}", …)' for name in added if name not in renamed.values()]
    steps += [f'drop("{name}")' for name in removed if name not in renamed]
    for name in others:
        parts.append(f'"{name}" was {before[name]} and is {now[name]}')
        steps.append(f'convert("{name}", …)')
    if not parts:
        return ""
    return (
        f"{', '.join(parts)} after version {version} was deployed, so earlier events cannot be read: "
        f"declare version={version + 1}, and upcast({version}, {', '.join(steps)}) in its history"
    )


def _renamed(before: Fields, now: Fields, added: list[str], removed: list[str]) -> dict[str, str]:
    """The fields that probably have a new name: one of its kind is gone, and one of it is new, in the same model."""
    renamed = {}
    for old in removed:
        alike = [new for new in added if _around(new) == _around(old) and _reads(before[old], now[new])]
        rivals = [
            candidate
            for candidate in removed
            if _around(candidate) == _around(old) and before[candidate] == before[old]
        ]
        if len(alike) == len(rivals) == 1:
            renamed[old] = alike[0]
    return renamed


def _reads(before: str, now: str) -> bool:
    """Whether values of a field are read as before; that null is allowed now changes no earlier one."""
    return now in (before, before + NULLABLE)


def _was(names: list[str]) -> str:
    return "was" if len(names) == 1 else "were"
