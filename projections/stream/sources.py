"""What a stream view reads: observations of some types, each as a row of a DataFrame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from commands.declaring.observation import Observation
from eventlog.topics import OBSERVATIONS
from projections.stream.durations import duration
from projections.table.declared import storage_word
from projections.table.types import ColumnType, field_types, is_required

GIVEN: Final[Mapping[str, ColumnType]] = {
    "id": ColumnType.TEXT,
    "source": ColumnType.TEXT,
    "time": ColumnType.TIME,
    "recordedtime": ColumnType.TIME,
    "type": ColumnType.TEXT,
}
"""Columns of every source, beside the fields of its classes; `type` only if it has several classes."""


@storage_word("Observed")
@dataclass(frozen=True)
class Observed:
    """Observations of some classes. late_after: an observation that is accepted later than this is late."""

    classes: tuple[type[Observation], ...]
    late_after: str

    def check(self) -> None:
        """Check the declaration; raises ValueError that says what to change."""
        if not self.classes:
            raise ValueError("observations() needs at least one class of observations")
        for kind in self.classes:
            if not (isinstance(kind, type) and issubclass(kind, Observation) and kind.type):
                name = getattr(kind, "__name__", repr(kind))
                raise ValueError(f'"{name}" is not a class of observations with a type')
        duration(self.late_after)
        found: dict[str, ColumnType] = {}
        for kind in self.classes:
            for name, column in field_types(kind).items():
                if name in GIVEN:
                    raise ValueError(f'field "{name}" of "{kind.type}" has the name of a column that every source has')
                if found.setdefault(name, column) is not column:
                    raise ValueError(f'classes declare field "{name}" with different types: read them as two sources')

    @property
    def topic(self) -> str:
        """The topic that it reads."""
        return OBSERVATIONS

    @property
    def late_by(self) -> timedelta:
        """How much later than it was observed an observation may be accepted without being late."""
        return duration(self.late_after)

    @property
    def types(self) -> Mapping[str, type[Observation]]:
        """The classes by type."""
        return {kind.type: kind for kind in self.classes}

    @property
    def fields(self) -> Mapping[str, ColumnType]:
        """The type of each field of the classes."""
        return {name: column for kind in self.classes for name, column in field_types(kind).items()}

    @property
    def columns(self) -> Mapping[str, ColumnType]:
        """The columns of its DataFrame."""
        given = {name: kind for name, kind in GIVEN.items() if name != "type" or len(self.classes) > 1}
        return {**self.fields, **given}

    def required(self, kind: type[Observation]) -> list[str]:
        """The fields of a class that must not be null."""
        return [name for name in field_types(kind) if is_required(kind, name)]

    @property
    def declaration(self) -> str:
        """Its text in a fingerprint: a class and its fields, because a change of them is read differently."""
        classes = [
            f"{kind.type} {kind.version} {sorted((name, column.value) for name, column in field_types(kind).items())}"
            for kind in self.classes
        ]
        return f"observations({', '.join(classes)}; late after {self.late_after})"


def observations(*classes: type[Observation], late_after: str) -> Observed:
    """Observations of these classes, as a DataFrame with the fields of the classes and:

    `time` when it was observed, `recordedtime` when it was accepted, `id` (`type/source/id`), `source` who reported it,
    and `type` if there are several classes.

    late_after: such as "1h". An observation is late if it was accepted later than this after it was observed; the
    view's `late` says what happens then.
    """
    return Observed(classes, late_after)
