"""The checkpoint of a stream view's query: one per generation, in the state directory, for one process at a time."""

from __future__ import annotations

import fcntl
import json
import logging
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eventlog.settings import LogSettings
from eventlog.source_positions import source_id
from projections.errors import StreamQueryFailed
from projections.generations.stream_report import write_report

log = logging.getLogger(__name__)

_VERSION: Final = "v1"
_NOTHING: Final = "-"
_LOCK: Final = ".lock"


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint. folder: Spark's files; the query of a generation without this folder cannot continue."""

    folder: Path

    @classmethod
    def of(cls, settings: LogSettings, tag: str) -> Checkpoint:
        """The checkpoint of the generation whose patches have this tag."""
        return cls(_folder(settings) / tag)

    @property
    def location(self) -> str:
        """Where it is, for Spark, which does not decode an escaped "@"."""
        return f"file://{self.folder}"

    @property
    def lock(self) -> Path:
        """The file that is locked while the query runs."""
        return self.folder.with_name(f"{self.folder.name}{_LOCK}")

    @property
    def exists(self) -> bool:
        """Whether the query has begun here."""
        return self.folder.exists()

    def create(self) -> None:
        """Begin anew: a query that starts here reads its sources from the first record."""
        self.remove()
        self.folder.mkdir(parents=True)

    def remove(self) -> None:
        """Delete it, if it exists."""
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Hold it while its query runs; False if another process holds it: two queries would break it.

        Raises OSError if its lock file cannot be made or locked.
        """
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with self.lock.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True

    def committed(self) -> int:
        """The number of the last batch that ended; -1 if there is none."""
        return self._last("commits")

    def begun(self) -> int:
        """The number of the last batch that began; -1 if there is none."""
        return self._last("offsets")

    def _last(self, folder: str) -> int:
        return max((int(each.name) for each in (self.folder / folder).glob("[0-9]*")), default=-1)

    def ends(self, batch: int, settings: LogSettings) -> dict[str, int]:
        """By source, the offset after the last record that a batch reads; Spark writes them before the batch begins."""
        lines = (self.folder / "offsets" / str(batch)).read_text().splitlines()
        if lines[0] != _VERSION:
            raise StreamQueryFailed(self.folder.name, f'its offsets have the unknown format "{lines[0]}"')
        found: dict[str, int] = {}
        for line in lines[2:]:  # after Spark's own settings, a line per source of the query
            for topic, offsets in (json.loads(line) if line != _NOTHING else {}).items():
                for partition, offset in offsets.items():
                    source = source_id(topic.removeprefix(settings.topic("")), int(partition))
                    found[source] = min(offset, found.get(source, offset))
        return found


def _folder(settings: LogSettings) -> Path:
    return settings.state.absolute() / "checkpoints" / "streams" / settings.environment


def sweep(settings: LogSettings, registered: Callable[[], Collection[str]]) -> list[str]:
    """Delete the checkpoints of generations that are gone, unless their query runs; returns their tags.

    registered: the tags of all generations. A generation is registered before it has a checkpoint, so they are asked
    for after the checkpoints were listed.
    """
    folder = _folder(settings)
    try:
        found = {each.name.removesuffix(_LOCK) for each in folder.iterdir()} if folder.exists() else set()
    except OSError as error:
        log.warning("cannot look for checkpoints that are no longer needed: %s", error)
        return []
    gone = sorted(found - set(registered())) if found else []
    for tag in gone:
        forget(settings, tag)
    return gone


def forget(settings: LogSettings, tag: str) -> None:
    """Delete the checkpoint of a generation that is gone, if it has one here, unless its query runs.

    If it cannot be deleted, that is logged.
    """
    checkpoint = Checkpoint.of(settings, tag)
    try:
        if not (checkpoint.exists or checkpoint.lock.exists()):
            return
        with checkpoint.held() as is_ours:
            if is_ours:
                checkpoint.remove()
                write_report(settings, tag, None)
                checkpoint.lock.unlink()  # whoever has it open holds nothing: no other generation gets this tag
    except OSError as error:
        log.warning("cannot delete the checkpoint of %s: %s", tag, error)
