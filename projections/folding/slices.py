"""Folds a long log in slices, each kept on disk until all are written: an interrupted rebuild reuses them.

A fold is a monoid, so the fold of a log is the fold of its slices' folds. A slice is kept only if the workers write to
the disk of this process.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

import headwater.commands
import headwater.projections
from headwater.eventlog.kafka.admin import topic_id
from headwater.eventlog.settings import LogSettings
from headwater.projections.folding.combining import on_disk
from headwater.projections.folding.tasks import Share
from headwater.projections.generations.rebuild.engine import Ranges
from headwater.projections.generations.registry.sources import Selection
from headwater.projections.limits import SLICE_OFFSETS
from headwater.projections.reading.fold_records import Erased, Part
from headwater.projections.table.view import TableView

log = logging.getLogger(__name__)

PREFIX: Final = "rest-"
LOCK: Final = "lock"
"""A file in each; its process holds a kernel lock on it, which ends with the process."""
KEPT_S: Final = 24 * 60 * 60
"""Shorter than the retention of tombstones, so that later erasures are found in the log."""
TOGETHER: Final = "several."
"""How folders for several views begin; names of views contain no dot."""
SHARES: Final = "shares.msgpack"
"""Written last: a slice with this file is complete."""
Fold = Callable[[Ranges, Path], list[Share]]
"""Folds some ranges; the path is a folder for the files of its shares."""


@contextmanager
def temporary_folder(parent: Path) -> Iterator[Path]:
    """A new folder in `parent`, which is removed at the end."""
    parent.mkdir(parents=True, exist_ok=True)
    while True:
        with tempfile.TemporaryDirectory(prefix=PREFIX, dir=parent, ignore_cleanup_errors=True) as name:
            folder = Path(name)
            try:
                lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
            except FileNotFoundError:
                continue
            try:
                # another process may have taken it for one of a killed process
                if _locked(lock) and folder.exists():
                    yield folder
                    return
            finally:
                os.close(lock)


def remove_abandoned(parent: Path) -> None:
    """Remove such folders of processes that were killed."""
    for folder in parent.glob(f"{PREFIX}*"):
        with suppress(OSError):  # it has just been removed, or has no lock yet
            lock = os.open(folder / LOCK, os.O_RDWR)
            try:
                if _locked(lock):
                    shutil.rmtree(folder, ignore_errors=True)
                    log.info("removed %s, which a killed process left", folder)
            finally:
                os.close(lock)


def is_held(folder: Path) -> bool:
    """Whether a process has taken this folder; then only `remove_abandoned` knows if the process is alive."""
    return (folder / LOCK).exists()


def _locked(lock: int) -> bool:
    """Whether this process holds the lock now."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@dataclass(frozen=True)
class Slices:
    """The slices of a rebuild of some views.

    size: offsets of a slice, in all partitions together. Slices begin at fixed offsets, so that a later rebuild of a
    longer log finds those of an earlier one.
    """

    settings: LogSettings
    views: Sequence[TableView]
    selection: Selection
    size: int = SLICE_OFFSETS

    @contextmanager
    def folding(self) -> Iterator[Path]:
        """A folder for what is not kept; it is deleted at the end. Raises DiskFull."""
        remove_left(self.settings)
        with on_disk(str(self._of_views)), temporary_folder(self._of_views) as rest:
            yield rest

    def fold(self, ranges: Ranges, erased: Erased, buckets: int, rest: Path, fold: Fold) -> list[Share]:
        """The shares of `ranges`; kept slices are not folded again. rest: see `folding`."""
        step = max(1, self.size // max(1, len(ranges)))
        whole = min((end // step for _, end in ranges.values()), default=0)
        shares: list[Share] = []
        if whole:
            folder = self._folder(erased, buckets)
            for number in range(whole):
                shares += self._slice(folder / str(number), _part(ranges, number * step, (number + 1) * step), fold)
        left = _part(ranges, whole * step, None)
        return shares + fold(left, Path(tempfile.mkdtemp(dir=rest)))

    def forget(self) -> None:
        """Delete the kept slices."""
        for folder in self._of_views.glob("*"):
            if not folder.name.startswith(PREFIX):
                shutil.rmtree(folder, ignore_errors=True)

    def _slice(self, folder: Path, part: Ranges, fold: Fold) -> list[Share]:
        noted = folder / SHARES
        if noted.exists() and noted.stat().st_mtime > time.time() - KEPT_S:
            log.info("slice %s of %s was folded before", folder.name, ", ".join(view.tag for view in self.views))
            return msgspec.msgpack.decode(noted.read_bytes(), type=list[Share])
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            shares = fold(part, folder)
            unfinished = noted.with_suffix(f".{os.getpid()}")
            unfinished.write_bytes(msgspec.msgpack.encode(shares))
            unfinished.replace(noted)
        except BaseException:  # half a slice is of no use, and the disk may be full
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return shares

    @property
    def _of_views(self) -> Path:
        # another rebuild, of other views, may run at the same time
        names = [view.name for view in self.views]
        name = names[0] if len(names) == 1 else TOGETHER + _digest(names)
        return _all_of(self.settings) / name

    def _folder(self, erased: Erased, buckets: int) -> Path:
        # a topic that was deleted and created again has the same name, but other events
        what = [
            *(text for view in self.views for text in (view.fingerprint, *view.row_types)),
            str(self.selection),
            str(self.size),
            *(
                topic_id(self.settings, topic)
                for topic in sorted({topic for view in self.views for topic in view.topics})
            ),
        ]
        # other code may fold the same declaration into other fields, so their slices must not be mixed
        keys = sorted((source, sorted(offsets.items())) for source, offsets in erased.items() if offsets)
        what += [str(buckets), repr(keys), code_digest()]
        return self._of_views / _digest(what)


def remove_left(settings: LogSettings) -> None:
    """Remove what killed folds left, except slices that a rebuild can still use."""
    for views in _all_of(settings).glob("*"):
        remove_abandoned(views)
        for folder in views.glob("*"):
            with suppress(FileNotFoundError):  # another process deletes it
                changed_at = max(path.stat().st_mtime for path in (folder, *folder.rglob("*")))
                if not is_held(folder) and changed_at < time.time() - KEPT_S:
                    shutil.rmtree(folder, ignore_errors=True)


def _all_of(settings: LogSettings) -> Path:
    return settings.state.absolute() / "replays" / settings.environment


def _digest(what: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(what).encode()).hexdigest()[:16]


@cache
def code_digest() -> str:
    """Identifies the code that folds: this package, and what it uses of `commands`."""
    digest = hashlib.sha256()
    for package in (headwater.projections, headwater.commands):
        root = Path(package.__path__[0])
        for file in sorted(root.rglob("*.py")):
            digest.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def _part(ranges: Ranges, start: int, end: int | None) -> dict[str, tuple[int, int]]:
    """The part of `ranges` between two offsets, the same in every source."""
    parts = {}
    for source, (first, last) in ranges.items():
        low = max(first, start)
        parts[source] = (low, max(low, last if end is None else min(last, end)))
    return parts


def parts_of(ranges: Ranges) -> Sequence[Part]:
    """Ranges as a list of parts."""
    return [Part(source, start, end) for source, (start, end) in ranges.items()]
