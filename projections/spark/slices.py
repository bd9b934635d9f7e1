"""Folds a long log in slices, each kept as Parquet until all are loaded: an interrupted replay reuses them.

A fold is a monoid, so the fold of a log is the fold of its slices' folds. Slices are kept only if the session is local,
because only then executors write to the disk of this process. A log of one slice keeps nothing.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import commands
import projections
from eventlog.admin import topic_id
from eventlog.settings import LogSettings
from eventlog.topics import EVENTS
from projections.generations.selection import Selection
from projections.spark.erasing import remaining
from projections.spark.events import TOMBSTONE_ROW
from projections.spark.folding import POISON, combined, folded
from projections.spark.kafka_source import Ranges, read_ranges
from projections.spark.selected_records import selected
from projections.table.expressions import identifier
from projections.table.monoids import Ranked
from projections.table.view import TableView

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

SLICE_OFFSETS: Final = 20_000_000
"""Of all partitions together; about a minute of folding on two cores."""
KEPT_S: Final = 24 * 60 * 60
"""Shorter than the retention of tombstones, so that later erasures are found in the log."""
_ENTRY: Final = "_entry"


@dataclass(frozen=True)
class Slices:
    """The slices of one view's replay.

    size: offsets of a slice, in all partitions together. Slices begin at fixed offsets, so that a later replay of a
    longer log finds those of an earlier one. erased: events to leave out (see `erasing`); None if none is known.
    """

    session: SparkSession
    settings: LogSettings
    view: TableView
    selection: Selection
    size: int = SLICE_OFFSETS
    erased: DataFrame | None = None

    def fold(self, ranges: Ranges) -> DataFrame:
        """The rows of the events in `ranges`, as from `folded`; kept slices are not folded again."""
        step = max(1, self.size // max(1, len(ranges)))
        whole = min((end // step for _, end in ranges.values()), default=0)
        if whole == 0 or not self._is_local:
            return self._fold(ranges)
        self._forget_what_is_old(ranges)
        for number in range(whole):
            self._keep(number, _part(ranges, number * step, (number + 1) * step), ranges)
        kept = self.session.read.parquet(*(str(self._folder / str(number) / "rows") for number in range(whole)))
        rest = _part(ranges, whole * step, None)
        if any(end > start for start, end in rest.values()):
            kept = kept.unionByName(self._fold(rest))
        return recombined(kept, self.view)

    def forget(self) -> None:
        """Delete the kept slices: the replay has succeeded."""
        shutil.rmtree(self._of_view, ignore_errors=True)

    def _keep(self, number: int, part: Ranges, ranges: Ranges) -> None:
        folder = self._folder / str(number)
        if (folder / "ends.json").exists():
            log.info("%s: slice %d was folded before", self.view.tag, number)
            return
        shutil.rmtree(folder, ignore_errors=True)
        self._fold(part).write.parquet(str(folder / "rows"))
        # written last: a folder with this file is complete
        ends = {str(partition): end for partition, (_, end) in ranges.items()}
        (folder / "ends.json").write_text(json.dumps(ends))

    def _fold(self, ranges: Ranges) -> DataFrame:
        records = read_ranges(self.session, self.settings, ranges)
        if self.erased is not None:
            records = remaining(records, self.erased)
        return folded(selected(records, self.view, self.selection), self.view)

    def _forget_what_is_old(self, ranges: Ranges) -> None:
        """If events may have been erased since a slice was folded, no slice is used."""
        noted = list(self._folder.glob("*/ends.json"))
        if not noted:
            return
        if min(each.stat().st_mtime for each in noted) > time.time() - KEPT_S:
            ends = [json.loads(each.read_text()) for each in noted]
            since = {each: (min(seen.get(str(each), 0) for seen in ends), end) for each, (_, end) in ranges.items()}
            if not self._erases(since):
                return
        log.info("%s: the slices of an earlier replay are too old to be used", self.view.tag)
        self.forget()

    def _erases(self, ranges: Ranges) -> bool:
        if not any(end > start for start, end in ranges.values()):
            return False
        return not read_ranges(self.session, self.settings, ranges).where(TOMBSTONE_ROW).isEmpty()

    @property
    def _is_local(self) -> bool:
        return (self.session.sparkContext.master or "").partition("[")[0] == "local"

    @property
    def _of_view(self) -> Path:
        return self.settings.state.absolute() / "replays" / self.settings.environment / self.view.name

    @property
    def _folder(self) -> Path:
        # a topic that was deleted and created again has the same name, but other events
        what = [self.view.fingerprint, str(self.selection), str(self.size), topic_id(self.settings, EVENTS)]
        # other code may fold the same declaration into other fields, so their slices must not be mixed
        what += ["with what is erased" if self.erased is None else "without what is erased", code_digest()]
        digest = hashlib.sha256("\n".join(what).encode()).hexdigest()[:16]
        return self._of_view / digest


@cache
def code_digest() -> str:
    """Identifies the code that folds: this package, what it uses of `commands`, and Spark."""
    from pyspark import __version__  # noqa: PLC0415

    digest = hashlib.sha256(__version__.encode())
    for package in (projections, commands):
        root = Path(package.__path__[0])
        for file in sorted(root.rglob("*.py")):
            digest.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def recombined(folds: DataFrame, view: TableView) -> DataFrame:
    """Combines folds of parts of a log, as from `folded`, into the fold of the whole."""
    ranked = {identifier(each.field.name) for each in view.layout.monoids if isinstance(each, Ranked)}
    if not ranked:
        return combined(folds, view)
    # of a ranked list, an event brings one entry, so each row here must have one as well
    longest = f"greatest(1, 1, {', '.join(f'coalesce(size({each}), 0)' for each in ranked)})"
    numbered = folds.selectExpr("*", f"explode(sequence(0, {longest} - 1)) as {_ENTRY}")
    fields = (
        f"if(get({name}, {_ENTRY}) is null, null, array(get({name}, {_ENTRY}))) as {name}"
        if name in ranked
        else f"if({_ENTRY} = 0, {name}, null) as {name}"
        for name in (identifier(each.name) for each in view.layout.fields)
    )
    return combined(numbered.selectExpr(identifier(view.key_name), POISON, *fields), view)


def _part(ranges: Ranges, start: int, end: int | None) -> Mapping[int, tuple[int, int]]:
    """The part of `ranges` between two offsets, the same in every partition."""
    parts = {}
    for partition, (first, last) in ranges.items():
        low = max(first, start)
        parts[partition] = (low, max(low, last if end is None else min(last, end)))
    return parts
