"""The rows that dead letters are about: a retry folds these again, which may spare a rebuild of their view."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from headwater.eventlog.letters import Letter
from headwater.eventlog.ports import record_at
from headwater.eventlog.source_positions import source_id
from headwater.eventlog.topics import EVENTS, PATCHES
from headwater.projections.folding.reading import Unreadable
from headwater.projections.folding.row_changes import rows_of_record
from headwater.projections.view import View
from headwater.replay.deployment import Deployment
from headwater.replay.erased_rows import MAX_KEYS
from headwater.replay.errors import CannotFoldRow, CannotRetry
from headwater.replay.progress import OnStep
from headwater.replay.row import fold_rows

DONE: Final = ("equal", "replaced")


@dataclass(frozen=True)
class LetterRows:
    """The rows of a view that a letter is about. after: see RowFolder."""

    keys: frozenset[str] = frozenset()
    after: Mapping[str, int] = field(default_factory=dict)


def rows_of_letter(deployment: Deployment, view: View, key: str, letter: Letter) -> LetterRows | None:
    """The rows of `view` that are wrong because of this letter; None if it does not tell.

    Raises CannotRetry if its record still cannot be read, and LogUnavailable.
    """
    if key.startswith(f"{PATCHES}/"):
        # a part of a patch names its row; of a whole patch that nobody could read, nothing is known
        known = len(key.split("/")) > 3 and letter.key is not None
        return LetterRows(frozenset({(letter.key or b"").decode(errors="surrogateescape")})) if known else None
    record = None
    with suppress(ValueError):
        topic, partition, offset = key.rsplit("/", 2)
        record = record_at(deployment.log, topic, int(partition), int(offset))
    if record is None:
        return None
    if record.value is None and record.topic == EVENTS:
        return LetterRows()  # it was erased since
    source = source_id(record.topic, record.partition)
    try:
        keys = rows_of_record(view, record)
    except Unreadable as error:
        raise CannotRetry(key, f"record {source}:{record.offset} still cannot be read: {error}") from error
    return None if keys is None else LetterRows(keys, {source: record.offset})


def fold_again(deployment: Deployment, view: View, letters: list[LetterRows], on_step: OnStep) -> int | None:
    """Fold the rows of these letters again, and return how many there are; None if the view must be rebuilt instead.

    Raises what `fold_rows` raises, except CannotFoldRow.
    """
    keys = sorted({key for each in letters for key in each.keys})
    if not keys or len(keys) > MAX_KEYS:
        return None if keys else 0
    after = dict[str, int]()
    for each in letters:
        for source, offset in each.after.items():
            after[source] = max(offset, after.get(source, 0))
    try:
        stores = [each.name for each in view.stores]
        found = fold_rows(deployment, view, keys, stores, on_step, write=True, after=after)
    except CannotFoldRow:
        return None
    return len(keys) if all(each.outcome in DONE for each in found.rows) else None
