"""The fields that each version of an event had when it was first deployed, so that a change without a version is seen.

Recorded events keep the fields with which they were recorded. So if the fields of a class change, but not its version,
earlier events can no longer be read: neither by the handler nor by views.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from commands.declaring.aggregate import Event
from commands.declaring.shapes import Shapes
from eventlog.declaring import quoted
from eventlog.places import place_of
from projections.table.types import is_required

Fields = Mapping[str, str]
"""By name in JSON, the kind of each field, such as `int`, or `int | null`."""
Deployed = Mapping[tuple[str, int], Fields]
"""By type and version."""
NULLABLE: Final = " | null"


def fields_of(event: type[Event]) -> dict[str, str]:
    """The fields of an event in its current version."""
    return {
        name: kind.__name__ + ("" if is_required(event, name) else NULLABLE)
        for name, kind in event.history.fields.items()
    }


def changes(events: Iterable[type[Event]], deployed: Deployed) -> dict[str, list[str]]:
    """By type of event, what is wrong with it: a sentence for each version that does not have the fields it had."""
    found: dict[str, list[str]] = {}
    for event in events:
        for version in range(1, event.version + 1):
            before = deployed.get((event.history.type_of(version), version))
            if before is None:
                continue
            if version == event.version:
                problem = _changed(before, fields_of(event), version)
            else:
                problem = _misremembered(before, event.history.shapes_of(version), version)
            if problem:
                place = place_of(event)
                found.setdefault(event.type, []).append(
                    f'event "{event.type}"' + (f" ({place})" if place else "") + f": {problem}"
                )
    return found


def _changed(before: Fields, now: Fields, version: int) -> str:
    """What to write if the fields of the current version are others than those with which it was deployed."""
    added, removed = [name for name in now if name not in before], [name for name in before if name not in now]
    others = [name for name in now if name in before and not _reads(before[name], now[name])]
    parts, steps = list[str](), list[str]()
    if added:
        parts.append(f"{quoted(added)} {_was(added)} added")
        steps += [f'default("{name}", …)' for name in added]
    if removed:
        parts.append(f"{quoted(removed)} {_was(removed)} removed")
        steps += [f'drop("{name}")' for name in removed]
    for name in others:
        parts.append(f'"{name}" was {before[name]} and is {now[name]}')
        steps.append(f'convert("{name}", …)')
    if not parts:
        return ""
    return (
        f"{', '.join(parts)} after version {version} was deployed, so earlier events cannot be read: "
        f"declare version={version + 1}, and after({version}, {', '.join(steps)}) in its history"
    )


def _misremembered(before: Fields, shapes: Shapes, version: int) -> str:
    """What to write if a history leads to other fields than an older version had when it was deployed."""
    now = {name: shape.kind for name, shape in shapes.items() if shape.is_certain or name in before}
    kinds = {name: kind.removesuffix(NULLABLE) for name, kind in before.items()}
    same = kinds.keys() == now.keys() and all(
        kind is None or kind is object or kind.__name__ == kinds[name] for name, kind in now.items()
    )
    if same:
        return ""
    had = ", ".join(f"{name}: {kind}" for name, kind in before.items())
    return (
        f"version {version} was deployed with the fields {had}, but its history leads to {', '.join(now) or 'none'}: "
        f"correct the steps after({version}, …)"
    )


def _reads(before: str, now: str) -> bool:
    """Whether values of a field are read as before; that null is allowed now changes no earlier one."""
    return now in (before, before + NULLABLE)


def _was(names: list[str]) -> str:
    return "was" if len(names) == 1 else "were"
