"""What a stream view reads, and the types of its columns: observations or events of some types, each as a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Final

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.field_kinds import is_required
from headwater.commands.declaring.observation import Observation
from headwater.eventlog.capturing.declaring import Captured
from headwater.eventlog.declaring import WrongArguments, shown, word
from headwater.eventlog.topics import EVENTS, OBSERVATIONS
from headwater.projections.durations import duration
from headwater.projections.table.declared import storage_word
from headwater.projections.table.personal import sealed_names
from headwater.projections.table.rows import CapturedRow
from headwater.projections.table.types import ColumnType, field_types, is_exact

TEXT: Final = ColumnType.TEXT
INTEGER: Final = ColumnType.INTEGER
"""64 bits."""
FLOAT: Final = ColumnType.FLOAT
"""64 bits; infinity and NaN become null."""
BOOLEAN: Final = ColumnType.BOOLEAN
TIME: Final = ColumnType.TIME
"""UTC, milliseconds."""
POINT: Final = ColumnType.POINT
"""A struct of `lat` and `lon`, in degrees."""
JSON: Final = ColumnType.JSON
"""A JSON text."""
DATE: Final = ColumnType.DATE


def DECIMAL(digits: int, places: int) -> ColumnType:  # noqa: N802 - it stands among types
    """Exact decimals with so many digits, `places` of them behind the point, as in SQL; at most 38 digits.

    Raises WrongArguments.
    """
    try:
        return ColumnType.decimal(digits, places)
    except ValueError as error:
        raise WrongArguments(f"DECIMAL({shown(digits)}, {shown(places)}): {error}") from error


Kind = type[Observation] | type[Event]

TIMES: Final = {"time": ColumnType.TIME, "recordedtime": ColumnType.TIME}
GIVEN: Final[Mapping[str, ColumnType]] = {
    "id": ColumnType.TEXT,
    "source": ColumnType.TEXT,
    **TIMES,
    "type": ColumnType.TEXT,
}
"""Columns of observations, beside the fields of their classes; `type` only if there are several classes."""
GIVEN_OF_EVENTS: Final[Mapping[str, ColumnType]] = {
    "id": ColumnType.TEXT,
    "stream": ColumnType.TEXT,
    "sequence": ColumnType.INTEGER,
    **TIMES,
    "type": ColumnType.TEXT,
}
"""Columns of events, likewise."""
LATE_KEY: Final = "id"
LATE_DATA: Final = "data"
LATE_COLUMNS: Final[Mapping[str, ColumnType]] = {
    LATE_KEY: ColumnType.TEXT,
    "source": ColumnType.TEXT,
    "type": ColumnType.TEXT,
    "time": ColumnType.TIME,
    "recordedtime": ColumnType.TIME,
    "late_s": ColumnType.FLOAT,
    LATE_DATA: ColumnType.JSON,
}
"""Of a view of late records, and of each of its sources.

source: who reported an observation, or the stream of an event. late_s: seconds from `time` to `recordedtime`. data: as
it was recorded.
"""
NO_HISTORY: Final = (
    "is a captured table: its topic keeps only the last change of each row, so a replay would give other rows. Use a "
    "Lookup for what is true now; for what was true then, let a process turn its rows into events, and read these"
)


def source_types(kind: Kind) -> dict[str, ColumnType]:
    """The type of each field of a class in a DataFrame; decimals, dates and UUIDs are texts."""
    return {
        name: ColumnType.JSON if is_exact(field_type) else field_type for name, field_type in field_types(kind).items()
    }


@dataclass(frozen=True)
class StreamSource:
    """Records of some classes.

    late_after: a record that is accepted later than this after its time is late. is_of_late: whether it has only the
    records that are late, with the columns LATE_COLUMNS.
    """

    classes: tuple[Kind, ...]
    late_after: str
    is_of_late: bool = False

    function: ClassVar[str]
    """The name of the function that declares it."""
    base: ClassVar[type[Observation | Event]]
    """What its classes inherit from."""
    topic: ClassVar[str]
    """The topic that it reads."""
    given: ClassVar[Mapping[str, ColumnType]]
    """Its columns beside the fields of its classes; `type` only if there are several classes."""
    ordering: ClassVar[tuple[str, ...]] = ("id",)
    """Columns whose value decides the partition of a record: all records with the same one are in order."""

    def check(self) -> None:
        """Check the declaration; raises ValueError that says what to change."""
        if not self.classes:
            raise ValueError(f"{self.function}() needs at least one class of {self.function}")
        for kind in self.classes:
            if isinstance(kind, type) and issubclass(kind, Captured | CapturedRow):
                raise ValueError(f'"{_name(kind)}" {NO_HISTORY}')
            if not (isinstance(kind, type) and issubclass(kind, self.base) and hasattr(kind, "type") and kind.type):
                raise ValueError(f'"{_name(kind)}" is not a class of {self.function} with a type')
        if repeated := [cls for number, cls in enumerate(self.classes) if cls in self.classes[:number]]:
            raise ValueError(f'{self.function}() is given "{repeated[0].__name__}" twice: remove one')
        duration(self.late_after)
        types: dict[str, ColumnType] = {}
        for kind in self.classes:
            for name, column in source_types(kind).items():
                if name in self.given:
                    raise ValueError(f'field "{name}" of "{kind.type}" has the name of a column that every source has')
                if types.setdefault(name, column) is not column:
                    raise ValueError(f'classes declare field "{name}" with different types: read them as two sources')

    @property
    def late_by(self) -> timedelta:
        """How much later than its time a record may be accepted without being late."""
        return duration(self.late_after)

    @property
    def types(self) -> Mapping[str, Kind]:
        """The classes by type."""
        return {kind.type: kind for kind in self.classes}

    @property
    def recorded(self) -> frozenset[str]:
        """The types under which its records may have been recorded, earlier ones of events too."""
        return frozenset(name for kind in self.classes for name in types_of(kind))

    @property
    def fields(self) -> Mapping[str, ColumnType]:
        """The type of each field of the classes."""
        return {name: column for kind in self.classes for name, column in source_types(kind).items()}

    @property
    def columns(self) -> Mapping[str, ColumnType]:
        """The columns of its DataFrame."""
        if self.is_of_late:
            return LATE_COLUMNS
        given = {name: kind for name, kind in self.given.items() if name != "type" or len(self.classes) > 1}
        return {**self.fields, **given}

    @property
    def sealed(self) -> frozenset[str]:
        """The columns of its DataFrame that have ciphertexts in place of personal values, or inside."""
        names = frozenset(name for kind in self.classes for name in sealed_names(kind))
        return frozenset({LATE_DATA} if names else ()) if self.is_of_late else names

    def required(self, kind: Kind) -> list[str]:
        """The fields of a class that must not be null."""
        return [name for name in source_types(kind) if is_required(kind, name)]

    @property
    def declaration(self) -> str:
        """Its text in a fingerprint: a class and its fields, because a change of them is read differently."""
        classes = [
            f"{kind.type} {kind.version} {sorted((name, column.value) for name, column in source_types(kind).items())}"
            for kind in self.classes
        ]
        of_late = "late " if self.is_of_late else ""
        return f"{of_late}{self.function}({', '.join(classes)}; late after {self.late_after})"


@storage_word("Observed")
@dataclass(frozen=True)
class Observed(StreamSource):
    """Observations of some classes."""

    classes: tuple[type[Observation], ...]

    function = "observations"
    base = Observation
    topic = OBSERVATIONS
    given = GIVEN


@storage_word("Events")
@dataclass(frozen=True)
class Events(StreamSource):
    """Events of some classes."""

    classes: tuple[type[Event], ...]

    function = "events"
    base = Event
    topic = EVENTS
    given = GIVEN_OF_EVENTS
    ordering = ("id", "stream")


@word('observations(PageOpened, late_after="1h")')
def observations(*classes: type[Observation], late_after: str) -> Observed:
    """Observations of these classes, as a DataFrame with the fields of the classes and:

    `time` when it was observed, `recordedtime` when it was accepted, `id` (`type/source/id`), `source` who reported it,
    and `type` if there are several classes.

    late_after: such as "1h". An observation is late if it was accepted later than this after it was observed; the
    view's `late` says what happens then.
    """
    return Observed(classes, late_after)


@word('events(Placed, late_after="1h")')
def events(*classes: type[Event], late_after: str) -> Events:
    """Events of these classes, as a DataFrame with the fields of their current versions and:

    `time` when the command was accepted, `recordedtime` when it was decided, `id` (`order/O1/7`), `stream`
    (`order/O1`), `sequence` (7), and `type` (`order.placed`) if there are several classes.

    late_after: such as "1h". An event is late if its command was decided later than this after it was accepted, for
    example because no handler was running; the view's `late` says what happens then.
    """
    return Events(classes, late_after)


def check_source(source: object) -> None:
    """Check what a declaration has as a source; raises ValueError that says what to change."""
    if isinstance(source, type) and issubclass(source, Captured | CapturedRow):
        raise ValueError(f'"{_name(source)}" {NO_HISTORY}')
    if not isinstance(source, StreamSource):
        raise ValueError(f'"{_name(source)}" is not a source: use observations(…) or events(…)')
    source.check()


def types_of(kind: Kind) -> tuple[str, ...]:
    """The types under which records of a class were recorded."""
    return kind.history.types if issubclass(kind, Event) else (kind.type,)


def _name(kind: object) -> str:
    return kind.__name__ if isinstance(kind, type) else repr(kind)
