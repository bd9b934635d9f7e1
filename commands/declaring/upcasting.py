"""The versions of an event: checks its history, and reads older versions as the current version.

Every field of the current version is traced back through the steps to its lineage: the recorded fields and values that
it is made from (`lineages.py`).
"""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from typing import Any, Final, assert_never

from commands.declaring.lineages import (
    ABSENT,
    UNFIT,
    Constant,
    Converted,
    Lineage,
    Part,
    Recorded,
    evaluate,
    fits,
)
from commands.declaring.steps import (
    Change,
    Convert,
    Default,
    Drop,
    Kind,
    Rename,
    RenameType,
    Split,
    Step,
    name_of,
)

NO_VERSION: Final = 'has no "dataversion": it must be an integer of at least 1'


class HistoryError(ValueError):
    """A history does not lead to the declared event; the message says where and what to do."""


class History:
    """The versions of one event; made with the event's class.

    version: the current version. fields: the kind of each current field, by its name in JSON.
    """

    def __init__(
        self,
        version: int,
        changes: Sequence[Change],
        fields: Mapping[str, Kind],
        required: Sequence[str] = (),
        event_type: str = "",
    ) -> None:
        """required: fields that may not be null. event_type: the current type.

        Raises HistoryError if the changes do not lead to `fields` and the type.
        """
        self.version, self.fields = version, dict(fields)
        self._steps = _by_version(version, changes)
        self._types = _types_by_version(event_type, version, self._steps)
        self._fields: dict[int, dict[str, Kind | None]] = {version: dict(fields)}
        for number in range(version - 1, 0, -1):
            known = dict(self._fields[number + 1])
            for step in reversed(self._steps[number]):
                try:
                    _undo(step, known)
                except ValueError as error:
                    raise HistoryError(f"after({number}, …): {error}") from error
            self._fields[number] = known
        self._lineages = {number: self.lineage(number, version) for number in range(1, version)}
        for lineages in self._lineages.values():
            for name in required:
                if lineages[name] == Constant(None):
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
        return self._fields[version]

    def lineages(self, version: int) -> Mapping[str, Lineage]:
        """The lineage of each current field in an older version."""
        return self._lineages[version]

    def lineage(self, version: int, until: int) -> dict[str, Lineage]:
        """The lineage of each field of the version `until` in the older `version`."""
        made: dict[str, Lineage] = {name: Recorded(name) for name in self._fields[version]}
        for number in range(version, until):
            kinds = [self._fields[number + 1]]
            for step in reversed(self._steps[number][1:]):
                kinds.append(dict(kinds[-1]))
                _undo(step, kinds[-1])
            for step, after_step in zip(self._steps[number], reversed(kinds), strict=False):
                _trace(step, made, after_step)
        return made

    def changed(self, version: int, names: Sequence[str]) -> dict[str, Lineage]:
        """Those of the current fields `names` that this version did not record in the same way."""
        lineages = self._lineages.get(version, {})  # no current field
        return {name: lineages[name] for name in names if lineages.get(name, Recorded(name)) != Recorded(name)}

    def upcast(self, version: int, data: Mapping[str, Any], until: int | None = None) -> dict[str, Any]:
        """The data of an older version in the form of the current version (or the version `until`).

        A field that was not recorded stays absent. Raises ValueError naming the fields with a wrong type and the fields
        that this version did not have.
        """
        unknown = data.keys() - self._fields[version].keys()
        if unknown:
            raise ValueError(f"version {version} has no field {_quoted(unknown)}")
        lineages = self._lineages[version] if until is None else self.lineage(version, until)
        made = {name: evaluate(lineage, data) for name, lineage in lineages.items()}
        unfit = {name for name, value in made.items() if value is UNFIT}
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


def _undo(step: Step, fields: dict[str, Kind | None]) -> None:
    """Replace the fields after a step by those before it; raises ValueError if the step is impossible."""
    match step:
        case Rename():
            kind = _take(fields, step.new, "renames to")
            _add(fields, step.old, kind, "renames from")
        case Default():
            kind = _take(fields, step.field, "adds")
            if step.value is not None and kind is not None and not fits(step.value, kind):
                raise ValueError(f'"{step.field}" holds a {name_of(kind)}, but its default is {step.value!r}')
        case Drop():
            _add(fields, step.field, None, "drops")
        case Convert():
            kind = _take(fields, step.field, "converts")
            try:
                fields[step.field] = step.how.source(kind)
            except ValueError as error:
                raise ValueError(f'"{step.field}": {error}, which the next version has') from error
        case Split():
            if not step.at or len(step.into) < 2:
                raise ValueError(f'the split of "{step.field}" needs a separator and at least two names')
            for name in step.into:
                kind = _take(fields, name, "splits into")
                if kind not in (str, None):
                    raise ValueError(f'a split gives texts, but "{name}" holds a {name_of(kind)}')
            _add(fields, step.field, str, "splits")
        case RenameType():
            pass
        case _:
            assert_never(step)


def _take(fields: dict[str, Kind | None], name: str, does: str) -> Kind | None:
    if name not in fields:
        raise ValueError(f'it {does} "{name}", which the next version does not have; it has {_quoted(fields)}')
    return fields.pop(name)


def _add(fields: dict[str, Kind | None], name: str, kind: Kind | None, does: str) -> None:
    if name in fields:
        raise ValueError(f'it {does} "{name}", which the next version also has: rename one of them')
    fields[name] = kind


def _trace(step: Step, made: dict[str, Lineage], after_step: Mapping[str, Kind | None]) -> None:
    """Trace the lineage of each field through a step."""
    match step:
        case Rename():
            made[step.new] = made.pop(step.old)
        case Default():
            made[step.field] = Constant(step.value)
        case Drop():
            del made[step.field]
        case Convert():
            source = step.how.source(after_step[step.field])
            made[step.field] = Converted(made[step.field], step.how, source)
        case Split():
            of = made.pop(step.field)
            for number, name in enumerate(step.into):
                made[name] = Part(of, step.at, number, len(step.into))
        case RenameType():
            pass
        case _:
            assert_never(step)


def _quoted(names: typing.Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in sorted(names))
