"""Checks of a stream view's declaration; each raises ValueError that says what to change."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal

from headwater.eventlog.declaring import must_be_flag, must_be_text, must_be_texts
from headwater.projections.durations import duration
from headwater.projections.stream.sources import check_source
from headwater.projections.table.checks import check_columns, check_name, check_shared
from headwater.projections.table.mistaken import must_be, refuse_first
from headwater.projections.table.types import ColumnType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headwater.projections.stream.view import StreamView

Query = Callable[..., "DataFrame"]
Late = Literal["amend", "drop", "keep"]
KEY_TYPES: Final = (ColumnType.TEXT, ColumnType.INTEGER, ColumnType.BOOLEAN, ColumnType.TIME, ColumnType.DATE)
LONGEST_PAUSE: Final = timedelta(minutes=5)
"""Between two batches; `replay status` takes a view without progress for longer as stalled."""
SEALED_TYPES: Final = (ColumnType.TEXT, ColumnType.JSON)
COLUMN_TYPES: Final = (*KEY_TYPES, ColumnType.FLOAT, ColumnType.POINT, ColumnType.JSON)


def is_column_type(kind: object) -> bool:
    """Whether a stream view can have columns of this type."""
    return kind in COLUMN_TYPES or (isinstance(kind, ColumnType) and kind.is_decimal)


def is_key_type(kind: ColumnType) -> bool:
    """Whether columns of this type can be a key: each value has one text."""
    return kind in KEY_TYPES or kind.is_decimal


def check_stream(view: StreamView) -> None:
    """Check all but the stores."""
    check_name(view.name)
    check_columns((*view.columns, *(name for lookup in view.lookups for name in lookup.columns)))
    for name, kind in view.columns.items():
        if not is_column_type(kind):
            types = f"{_names(COLUMN_TYPES)} or DECIMAL(12, 2)"
            raise ValueError(f'column "{name}" has the type {kind!r}: use one of {types}')
    _check_key(view)
    if not view.sources:
        raise ValueError("it has no source: add sources={…: observations(…)} or sources={…: events(…)}")
    for name, source in view.sources.items():
        try:
            check_source(source)
        except ValueError as error:
            raise ValueError(f'source "{name}": {error}') from error
    try:
        inspect.signature(view.query).bind(**view.sources)
    except TypeError as error:
        raise ValueError(f"its query must take an argument per source ({', '.join(view.sources)}): {error}") from error
    _check_sealed(view)
    _check_late(view)
    if view.every and duration(view.every) > LONGEST_PAUSE:
        raise ValueError(f'every="{view.every}" is more than {LONGEST_PAUSE.total_seconds() / 60:g} minutes: use less')


def check_stream_types(view: StreamView) -> None:
    """Check the types of what it is declared with, which all other checks rely on."""
    check_name(view.name)
    check_shared(view)
    if isinstance(view.key, str):
        must_be_text("key", view.key, 'key="page"')
    else:
        must_be_texts("key", view.key, 'key=("page", "hour")')
    must_be(Mapping, view.columns, 'columns={} is no mapping: write columns={"page": TEXT}')
    example = 'sources={"opened": observations(PageOpened, late_after="1h")}'
    must_be(Mapping, view.sources, f"sources={{}} does not name the arguments of its query: write {example}")
    for name in ("keep_state", "every"):
        must_be(str, getattr(view, name), f'{name}={{}} is no text: write {name}="30s"')
    must_be_texts("sealed", view.sealed, 'sealed=("email",)')
    must_be_flag("final", view.final)
    must_be_flag("realtime", view.realtime)


def _check_key(view: StreamView) -> None:
    if not view.key_columns:
        raise ValueError("it has no key: name the columns that identify a row")
    for name in view.key_columns:
        if name not in view.columns:
            raise ValueError(f'its key column "{name}" is not among its columns {", ".join(view.columns)}')
        if not is_key_type(view.columns[name]):
            raise ValueError(f'its key column "{name}" is {view.columns[name].name}: use one of {_names(KEY_TYPES)}')
    check_columns([view.key_name])
    is_own = view.key_columns == (view.key_name,) and view.columns[view.key_name] is ColumnType.TEXT
    if view.key_name in view.columns and not is_own:
        raise ValueError(f'the text of its key needs a column of its own, not "{view.key_name}": set key_name="…"')
    name = view.deleted_by
    if not isinstance(name, str):
        raise ValueError(f"deleted_by={name!r} is not a text: name the BOOLEAN column of the query that deletes rows")
    if not name:
        return
    check_columns([name])
    if name in (*view.columns, view.key_name, *(column for lookup in view.lookups for column in lookup.columns)):
        raise ValueError(
            f'deleted_by="{name}" is also a column of the view: leave it out of its columns, or let the query return '
            "another BOOLEAN column"
        )


def _check_sealed(view: StreamView) -> None:
    for name in view.sealed:
        if name not in view.columns:
            raise ValueError(f'sealed names "{name}", which is not among its columns {", ".join(view.columns)}')
        if name in view.key_columns:
            raise ValueError(f'its key column "{name}" is sealed: rows are found by keys, so they must be in plaintext')
        if view.columns[name] not in SEALED_TYPES:
            raise ValueError(
                f'sealed names "{name}", which is {view.columns[name].name}: encrypted values are texts, whatever the '
                f"type of the field, so declare it as {_names(SEALED_TYPES)}"
            )
    if view.sealed and not any(source.sealed for source in view.sources.values()):
        raise ValueError(f'sealed names "{view.sealed[0]}", but no class of its sources has a personal field')
    for store in view.stores:
        if store.clear:
            raise ValueError(f"{type(store).__name__}(clear=…) is for table views: here, remove it")


def _check_late(view: StreamView) -> None:
    unknown = view.late not in ("amend", "drop", "keep")
    refuse_first(
        {
            f'late="{view.late}" is unknown: use "amend", "drop" or "keep"': unknown,
            'late="keep" makes a view of late records, which has no column for readable_by, so that everybody could '
            'read them: use late="drop" or "amend"': view.late == "keep" and view.readable_by,
        }
    )
    if view.late == "keep":
        try:
            check_name(view.late_name)
        except ValueError as error:
            raise ValueError(f'late="keep" makes a view "{view.late_name}": {error}') from error
    amends = view.late == "amend"
    refuse_first(
        {
            'keep_state is how long late observations amend a row: use it with late="amend" only': (
                not amends and view.keep_state
            ),
            'late="amend" needs keep_state, such as keep_state="7d": how long a row can be amended': (
                amends and not view.keep_state
            ),
            'a final row is sent once, so nothing can amend it: use late="drop" or "keep", or leave out final': (
                amends and view.final
            ),
        }
    )
    for name, source in view.sources.items():
        if view.admitted(source) < duration(source.late_after):
            raise ValueError(f'keep_state="{view.keep_state}" is shorter than late_after of source "{name}"')
    at_once = "a real-time view sends each row at once: leave out {} or realtime"
    refuse_first(
        {
            "a real-time view has one source: read all classes as one, or leave out realtime": len(view.sources) != 1,
            f'late="{view.late}" needs batches: use late="drop", or leave out realtime': view.late != "drop",
            at_once.format("final"): view.final,
            at_once.format("every"): view.every,
        }
        if view.realtime
        else {}
    )


def _names(kinds: Sequence[ColumnType]) -> str:
    return ", ".join(kind.name for kind in kinds)
