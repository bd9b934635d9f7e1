"""The checkpoint of a stream view's query: one per generation, for one process at a time; what is damaged in it."""

from __future__ import annotations

import fcntl
import json
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from headwater.eventlog.errors import SettingError
from headwater.eventlog.ports import EventLog
from headwater.eventlog.settings import SHARED_FOLDER, LogSettings
from headwater.eventlog.source_positions import source_id
from headwater.projections.errors import StreamQueryFailed
from headwater.projections.generations.rebuild.engine import holds_events
from headwater.projections.generations.registry.sources import sources
from headwater.projections.generations.registry.state_files import (
    Remote,
    StateFolder,
    location_of,
    names,
    remove,
    sizes,
    state_folder,
    write_report,
)
from headwater.projections.stores.store import Ledger, Target

_LOGS: Final = ("offsets", "commits")
_READ_ENTRIES: Final = 2
"""Of each log, when a query starts: of the last batch, and of the one before."""
_HEAD: Final = re.compile(r"v[0-9]+\n")
_STATE_FILE: Final = re.compile(r"([0-9]+)(?:_[^.]*)?\.(?:changelog|zip)")
"""The changes of one version of a store, or all of it; the first of these names is by version alone."""
log = logging.getLogger(__name__)
_VERSION: Final = "v1"
_NOTHING: Final = "-"
_LOCK: Final = ".lock"
_NOTE: Final = "headwater.json"
_VERSIONS: Final = re.compile(r"([0-9]+)\.([0-9]+)")
FORMAT: Final = 1
"""Of a checkpoint: what Headwater makes of a view's query, so which operators it has and in what order, and what those
of `in_order` keep. Raise it with any change of that; queries of another format compute their view anew."""
STATE_PROVIDER: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def damaged_file(folder: StateFolder) -> str | None:
    """The first file of Spark's checkpoint `folder` that is missing or cannot be read, by its path in it; None if there
    is none.

    Version N + 1 of each store is the state after batch N. What a batch that has not ended left is written again.
    """
    begun = _numbers(folder / "offsets")
    if not begun:
        return None
    try:
        is_json = isinstance(json.loads((folder / "metadata").read_text()), dict)
    except (FileNotFoundError, ValueError):
        is_json = False
    if not is_json:
        return "metadata"
    for log in _LOGS:
        for number in _numbers(folder / log)[-_READ_ENTRIES:]:
            if not _HEAD.match((folder / log / str(number)).read_text(errors="replace")):
                return f"{log}/{number}"
    committed = _numbers(folder / "commits")
    return next(_damaged_state(folder / "state", committed[-1] + 1), None) if committed else None


def _damaged_state(state: StateFolder, version: int) -> Iterator[str]:
    """The files of the state, at this version, that are missing or empty."""
    stores = defaultdict[PurePosixPath, dict[int, int]](dict)
    for name, size in sizes(state).items():
        file = PurePosixPath("state", name)
        if file.parent.name == "_metadata" and not file.name.startswith(".") and size == 0:
            yield str(file)
        if named := _STATE_FILE.fullmatch(file.name):
            number = int(named[1])
            stores[file.parent][number] = max(stores[file.parent].get(number, 0), size)
    for store, versions in stores.items():
        if not versions.get(version):
            yield str(store / f"{version}.changelog")


def _numbers(log: StateFolder) -> list[int]:
    return sorted(int(name) for name in names(log) if name.isdecimal())


class _Noted(msgspec.Struct):
    """What `note_spark` writes."""

    format: int
    spark: str
    state: str


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint. folder: Spark's files; the query of a generation without this folder cannot continue.

    lock: the file that is locked while the query runs. It holds for this machine, also for a process that deletes
    checkpoints; `QueryLocks` holds for all.
    """

    folder: StateFolder
    lock: Path

    @classmethod
    def of(cls, settings: LogSettings, tag: str) -> Checkpoint:
        """The checkpoint of the generation whose patches have this tag."""
        folder, lock = _folder(settings) / tag, f"{tag}{_LOCK}"
        return cls(
            folder,
            (
                settings.state.absolute() / "checkpoints" / "streams" / settings.environment
                if isinstance(folder, Remote)
                else folder.parent
            )
            / lock,
        )

    @property
    def location(self) -> str:
        """Where it is, for Spark."""
        return location_of(self.folder)

    @property
    def exists(self) -> bool:
        """Whether the query has begun here."""
        return self.folder.exists()

    def create(self) -> None:
        """Begin anew: a query that starts here reads its sources from the first record."""
        self.remove()
        self.folder.mkdir(parents=True)
        self.note_spark()

    def note_spark(self) -> None:
        """Write which Spark and format the query has; the provider of its state is for people. Raises OSError."""
        note = _Noted(FORMAT, spark_version(), STATE_PROVIDER)
        (self.folder / _NOTE).write_text(msgspec.json.encode(note).decode())

    def spark(self) -> str | None:
        """The version of the Spark that the query has run with; None if its note is damaged or missing."""
        return None if (noted := self._noted()) is None else noted.spark

    def not_of_this_code(self) -> str | None:
        """Why this code and its Spark cannot read it, after "its state"; None if they can.

        Spark reads checkpoints of earlier versions, and patch releases change no format.
        """
        if (noted := self._noted()) is None:
            return f"cannot be read: {_NOTE} is damaged or missing"
        if _minor(noted.spark) > _minor(spark_version()):
            return f"was written by Spark {noted.spark}, which is newer than this Spark, {spark_version()}"
        if noted.format != FORMAT:
            return f"has the format {noted.format} of another release of Headwater, and this one has {FORMAT}"
        return None

    def _noted(self) -> _Noted | None:
        try:
            noted = msgspec.json.decode((self.folder / _NOTE).read_text(), type=_Noted)
        except (FileNotFoundError, UnicodeError, msgspec.MsgspecError):
            return None
        return noted if _VERSIONS.match(noted.spark) else None

    def is_of_other_spark(self) -> bool:
        """Whether the query has run with another version of Spark, and not for long with this one."""
        return self.spark() not in (None, spark_version())

    def remove(self) -> None:
        """Delete it, if it exists. Raises OSError."""
        remove(self.folder)

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Hold it while its query runs; False if another process holds it: two queries would break it.

        Raises OSError if its lock file cannot be made or locked.
        """
        self.lock.parent.mkdir(parents=True, exist_ok=True)
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
        return max((int(name) for name in names(self.folder / folder) if name.isdecimal()), default=-1)

    def ends(self, batch: int, settings: LogSettings) -> dict[str, int]:
        """By source, the offset after the last record that a batch reads; Spark writes them before the batch begins."""
        lines = (self.folder / "offsets" / str(batch)).read_text().splitlines()
        if lines[0] != _VERSION:
            raise StreamQueryFailed(self.folder.name, f'its offsets have the unknown format "{lines[0]}"')
        ends: dict[str, int] = {}
        for line in lines[2:]:  # after Spark's own settings, a line per source of the query
            for topic, offsets in (json.loads(line) if line != _NOTHING else {}).items():
                for partition, offset in offsets.items():
                    source = source_id(topic.removeprefix(settings.topic("")), int(partition))
                    ends[source] = min(offset, ends.get(source, offset))
        return ends


@cache
def spark_version() -> str:
    """That of the Spark that is installed."""
    return version("pyspark")


def _minor(version: str) -> tuple[int, ...]:
    version_match = _VERSIONS.match(version)
    return tuple(map(int, version_match.groups())) if version_match else ()


def _folder(settings: LogSettings) -> StateFolder:
    return state_folder(settings) / "streams" / settings.environment


def check_shared(settings: LogSettings, env: Mapping[str, str]) -> None:
    """Raise SettingError if executors on other machines could not find the state of stream views."""
    master = env.get("SPARK_MASTER", "")
    if master and not master.startswith("local") and not settings.checkpoints:
        needs = f"{SHARED_FOLDER}, because SPARK_MASTER is a cluster, and its machines must find the state of"
        raise SettingError("HEADWATER_CHECKPOINTS", "", f"{needs} stream views")


def sweep(settings: LogSettings, registered: Callable[[], Collection[str]]) -> list[str]:
    """Delete the checkpoints of generations that are gone, unless their query runs; returns their tags.

    registered: the tags of all generations. A generation is registered before it has a checkpoint, so they are asked
    for after the checkpoints were listed.
    """
    try:
        folders = {_folder(settings), settings.state.absolute() / "checkpoints" / "streams" / settings.environment}
        locked = {name.removesuffix(_LOCK) for folder in folders for name in names(folder)}
    except OSError as error:
        log.warning("cannot look for checkpoints that are no longer needed: %s", error)
        return []
    gone = sorted(locked - set(registered())) if locked else []
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


def why_lost(
    target: Target, ledgers: Iterable[Mapping[int, Ledger]], settings: LogSettings, log: EventLog
) -> str | None:
    """Why the query of a generation cannot continue here, after "its state"; None if it can, or if there is no state.

    ledgers: those of the generation in each store; not read if there is no checkpoint. A checkpoint may be older than
    the rows if its disk was restored, or lost its last writes. Its query would give the numbers of batches that the
    rows have to other batches, and stores would keep the rows of the earlier ones. In any other case it is not older:
    a batch is written there before it begins, and rows have reached its end only after it has ended.

    Raises LogUnavailable.
    """
    if not target.view.has_state:
        return None
    checkpoint = Checkpoint.of(settings, target.tag)
    if not checkpoint.exists:
        return missing(settings)
    if (problem := checkpoint.not_of_this_code()) is not None:
        return problem
    if (damaged := damaged_file(checkpoint.folder)) is not None:
        return f"cannot be read: {damaged} is damaged or missing"
    # first: the query may run elsewhere, and the checkpoint move on
    ledgers_found = [ledger for by_partition in ledgers for ledger in by_partition.values()]
    reached = {
        source: max((ledger.reached(source) for ledger in ledgers_found), default=0)
        for source in sources([target.view], settings)
    }
    try:
        last = checkpoint.begun()
        ends = checkpoint.ends(last, settings) if last >= 0 else {}
    except (StreamQueryFailed, ValueError, IndexError):
        return "cannot be read"
    if last < 0:  # a generation that is built without records covers their heartbeats before its query begins
        is_older = holds_events(log, {source: (0, end) for source, end in reached.items()})
    else:
        is_older = any(end > ends.get(source, 0) for source, end in reached.items())
    return "is older than its rows" if is_older else None


def missing(settings: LogSettings) -> str:
    """What is said of a state that is not there, after "its state"."""
    return f"is not in {settings.checkpoints}" if settings.checkpoints else "is not on this machine"
