"""The versions of an event: checks its history, and reads older versions as the current version.

Every field of the current version is traced back through the steps to its lineage: the recorded fields and values that
it is made from (`lineages.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from headwater.commands.declaring.lineage_values import ABSENT, WrongType, evaluate
from headwater.commands.declaring.lineages import Constant, Lineage, Recorded, only
from headwater.commands.declaring.shapes import Shapes
from headwater.commands.declaring.steps import Change, Kind, RenameType, Step
from headwater.commands.declaring.tracing import trace
from headwater.commands.declaring.undoing import undo

NO_VERSION: Final = 'has no "dataversion": it must be an integer of at least 1'


class HistoryError(ValueError):
    """A history does not lead to the declared event; the message says where and what to do."""


class History:
    """The versions of one event; made with the event's class.

    version: the current version. fields: the kind of each current field, by its name in JSON.
    """

    def __init__(self, version: int, changes: Sequence[Change], shapes: Shapes, event_type: str = "") -> None:
        """shapes: of the current fields. event_type: the current type.

        Raises HistoryError if the changes do not lead to the fields and the type.
        """
        self.version = version
        self.fields: dict[str, Kind] = {name: shape.kind or object for name, shape in shapes.items()}
        self._steps = _by_version(version, changes)
        self._types = _types_by_version(event_type, version, self._steps)
        self._shapes: dict[int, Shapes] = {version: shapes}
        for number in range(version - 1, 0, -1):
            known = dict(self._shapes[number + 1])
            for step in reversed(self._steps[number]):
                try:
                    undo(step, known)
                except ValueError as error:
                    raise HistoryError(f"after({number}, …): {error}") from error
            self._shapes[number] = known
        self._lineages = {number: self.lineage(number, version) for number in range(1, version)}
        for lineages in self._lineages.values():
            for name, shape in shapes.items():
                if not shape.nullable and lineages[name] == Constant(None):
                    raise HistoryError(f'"{name}" must not be null, but its default is None: use another default')

    def __repr__(self) -> str:
        """The same for histories that read every record alike."""
        renamed = f", {self._types}" if len(self.types) > 1 else ""
        return f"History({self.version}, {self.fields}, {self._lineages}{renamed})"

    @property
    def types(self) -> tuple[str, ...]:
        """The types under which the event was recorded, the first one first; without a renaming, its type alone."""
        return tuple(dict.fromkeys(self._types[number] for number in sorted(self._types)))

    def type_of(self, version: int) -> str:
        """The type under which a version was recorded; the current one for a version that is not known."""
        return self._types.get(version, self._types[self.version])

    def fields_of(self, version: int) -> Mapping[str, Kind | None]:
        """The fields of a version with their kinds; None if the kind is unknown because the field was dropped."""
        return {name: shape.kind for name, shape in self._shapes[version].items()}

    def shapes_of(self, version: int) -> Shapes:
        """What the fields of a version hold."""
        return self._shapes[version]

    def steps(self, version: int) -> Sequence[Step]:
        """The steps from an older version to the next one."""
        return self._steps[version]

    def lineages(self, version: int) -> Mapping[str, Lineage]:
        """The lineage of each current field in an older version."""
        return self._lineages[version]

    def lineage(self, version: int, until: int) -> dict[str, Lineage]:
        """The lineage of each field of the version `until` in the older `version`."""
        made: dict[str, Lineage] = {name: Recorded(name) for name in self._shapes[version]}
        for number in range(version, until):
            shapes = [self._shapes[number + 1]]
            for step in reversed(self._steps[number][1:]):
                before = dict(shapes[-1])
                undo(step, before)
                shapes.append(before)
            for step, after_step in zip(self._steps[number], reversed(shapes), strict=False):
                trace(step, made, after_step, number)
        return made

    def changed(
        self, version: int, names: Sequence[str], items: Mapping[str, Collection[str]] | None = None
    ) -> dict[str, Lineage]:
        """Those of the current fields `names` that this version did not record in the same way.

        items: of the lists whose items are read one by one, the fields of the items that are read.
        """
        lineages = self._lineages.get(version, {})  # no current field
        found = {name: lineages[name] for name in names if name in lineages}
        for name, read in (items or {}).items():
            if name in found:
                found[name] = only(found[name], read)
        return {name: lineage for name, lineage in found.items() if lineage != Recorded(name)}

    def upcast(self, version: int, data: Mapping[str, Any], until: int | None = None) -> dict[str, Any]:
        """The data of an older version in the form of the current version (or the version `until`).

        A field that was not recorded stays absent. Raises ValueError naming the fields with a wrong type and the fields
        that this version did not have.
        """
        unknown = data.keys() - self._shapes[version].keys()
        if unknown:
            raise ValueError(f"version {version} has no field {_quoted(unknown)}")
        lineages = self._lineages[version] if until is None else self.lineage(version, until)
        made, unfit = dict[str, Any](), list[str]()
        for name, lineage in lineages.items():
            try:
                made[name] = evaluate(lineage, data, strictly=True)
            except WrongType as error:
                unfit.append(f"{name}{error.place}")
        if unfit:
            raise ValueError(f"recorded with another type than version {version} has: {_quoted(unfit)}")
        return {name: value for name, value in made.items() if value is not ABSENT}


def version_problem(event_type: str, found: int, known: int) -> str | None:
    """Why an event of the version `found` cannot be read if `known` is the current version; None if it can."""
    if found < 1:
        return f'"{event_type}" {NO_VERSION}'
    if found > known:
        return f'"{event_type}" has version {found}, {newer_version(known)}'
    return None


def newer_version(known: int) -> str:
    """The message for an event of a newer version."""
    return f"but the newest known here is {known}: it was written by a newer version of the code, deploy that here too"


def _by_version(version: int, changes: Sequence[Change]) -> dict[int, tuple[Step, ...]]:
    if version < 1:
        raise HistoryError(f"version {version}: versions count from 1")
    found: dict[int, tuple[Step, ...]] = {}
    for change in changes:
        if change.version in found:
            raise HistoryError(f"after({change.version}, …) appears twice: merge their steps")
        if not 1 <= change.version < version:
            raise HistoryError(
                f"after({change.version}, …) is beyond version {version}: raise the event's version, or correct it"
            )
        found[change.version] = change.steps
    gaps = [number for number in range(1, version) if number not in found]
    if gaps:
        raise HistoryError(
            f"the history has no after({gaps[0]}, …): add it, without steps if the fields of version {gaps[0]} did not "
            "change"
        )
    return {number: found[number] for number in sorted(found)}


def _types_by_version(event_type: str, version: int, steps: Mapping[int, Sequence[Step]]) -> dict[int, str]:
    """The type of each version; raises HistoryError if a renaming does not lead to the type of the next version."""
    found = {version: event_type}
    for number in range(version - 1, 0, -1):
        name = found[number + 1]
        for step in reversed(steps[number]):
            if isinstance(step, RenameType):
                if step.new != name:
                    raise HistoryError(
                        f'after({number}, …): it renames the type to "{step.new}", but the next version has the type '
                        f'"{name}"'
                    )
                name = step.old
        found[number] = name
    return found


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in sorted(names))
