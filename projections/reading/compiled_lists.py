"""The parts of compiled source that fold an event into a list of a row, without an object per event.

An event brings an entry to a `Ranked` or `Keyed` list. The row holds what `lists` has for such a list: the different
values, the best entries, or parts with slots like those of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from headwater.commands.declaring.aggregate import Event
from headwater.projections.table.expressions import Expression
from headwater.projections.table.items import Entries, LogPlace, items_python
from headwater.projections.table.monoids import Extreme, Keyed, Monoid, Pick, Ranked, Sum

INDENT = "    "

Changes = Callable[[Sequence[Monoid], Mapping[str, str], str], list[str]]
"""Makes the lines that combine values, by field, into a row with this name."""


@dataclass(frozen=True)
class ListCode:
    """reads: by variable, what is read of an event before anything changes. changes: the lines that change the row."""

    reads: Mapping[str, str] = field(default_factory=dict)
    changes: Sequence[str] = ()


def list_code(
    monoid: Monoid, number: int, place: str, read: Expression, event: type[Event] | None, changes: Changes
) -> ListCode | None:
    """The code for one list; None if there is none for a list of this kind.

    number: of the monoid. place: its slot in the row.
    """
    if not isinstance(read, Entries) or len(read.parts) != 1 or read.decimals:
        return None
    (part,) = read.parts
    within = monoid.monoids if isinstance(monoid, Keyed) else ()
    sums = {each.field.name for each in within if isinstance(each, Sum)}
    names = _Names(f"l{number}", part, event, sums)
    match monoid:
        case Ranked():
            made = _ranked(monoid, number, place, names)
        case Keyed() if not monoid.monoids:
            made = _values(monoid, number, place, names)
        case Keyed() if all(isinstance(each, Pick | Sum | Extreme) for each in monoid.monoids):
            made = _parts(monoid, number, place, names, changes)
        case _:
            return None
    if read.each is None:
        return ListCode(names.reads, made)
    through = f"for index, item in enumerate({items_python(read.each, event)})"
    listed = "".join(f"{each}, " for each in names.reads)
    texts = "".join(f"{each}, " for each in names.reads.values())
    loop = [f"for ({listed}) in l{number}:", *(INDENT + line for line in made)]
    return ListCode({f"l{number}": f"[({texts}) {through}]"}, loop)


class _Names:
    """The variables of an entry's fields. reads: by variable, its source. sums: fields that are added."""

    def __init__(
        self, prefix: str, part: Mapping[str, Expression], event: type[Event] | None, sums: Collection[str]
    ) -> None:
        self.reads: dict[str, str] = {}
        self.of: dict[str, str] = {}
        for number, (name, read) in enumerate(part.items()):
            text = read.python(event)
            # the place in the log is needed for few events
            if isinstance(read, LogPlace) or (name in sums and text.isdecimal()):
                self.of[name] = text
            else:
                self.of[name] = f"{prefix}_{number}"
                self.reads[self.of[name]] = text

    def are_there(self, keys: Sequence[str]) -> str:
        """The condition that none of these fields is null."""
        return " and ".join(f"{self.of[key]} is not None" for key in keys if self.of[key] in self.reads) or "True"


def _held(number: int, place: str, kind: str) -> list[str]:
    return [
        f"    held = {place}",
        "    if held is None:",
        f"        held = {place} = {kind}(monoid_{number})",
    ]


def _values(monoid: Keyed, number: int, place: str, names: _Names) -> list[str]:
    key = monoid.key.name
    return [
        f"if {names.are_there([key])}:",
        *_held(number, place, "Values"),
        f"    if {names.of[key]} not in held.seen and (held.edge is None or {names.of[key]} < held.edge):",
        f"        held.take({names.of[key]})",
    ]


def _ranked(monoid: Ranked, number: int, place: str, names: _Names) -> list[str]:
    keys = [each.name for each in monoid.keys]
    first, sign = names.of[keys[0]], ">=" if monoid.highest else "<="
    shown = ", ".join(f"{name!r}: {text}" for name, text in names.of.items() if name not in keys)
    return [
        f"if {names.are_there(keys)}:",
        *_held(number, place, "Ranks"),
        f"    if held.edge is None or {first} {sign} held.edge:",
        f"        held.take(({''.join(f'{names.of[key]}, ' for key in keys)}), {{{shown}}})",
    ]


def _parts(monoid: Keyed, number: int, place: str, names: _Names, changes: Changes) -> list[str]:
    key = names.of[monoid.key.name]
    brought = {name: text for name, text in names.of.items() if name != monoid.key.name}
    return [
        f"if {names.are_there([monoid.key.name])}:",
        *_held(number, place, "PartRows"),
        f"    part = held.parts.get({key})",
        "    if part is None:",
        f"        part = held.begin({key})",
        *(INDENT + line for line in changes(monoid.monoids, brought, "part")),
    ]
