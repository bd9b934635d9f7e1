"""What stream views keep on disk: their state, reports of their queries, and where other read sides have theirs."""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import unquote, urlsplit

from headwater.eventlog.settings import LogSettings

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_AS_PYARROW: Final = {"s3a": "s3"}
"""Names of Hadoop for what pyarrow calls something else."""


@dataclass(frozen=True)
class Remote:
    """A file or folder at a URL, with what callers need of a Path. Every method raises OSError.

    A folder of an object store exists while it has a file, or was made with `mkdir`.
    """

    url: str

    @property
    def name(self) -> str:
        """The last part of its path."""
        return PurePosixPath(self.url).name

    @property
    def parent(self) -> Remote:
        """The folder that it is in."""
        return Remote(self.url.rpartition("/")[0])

    def __truediv__(self, name: str) -> Remote:
        return Remote(f"{self.url}/{name}")

    def __str__(self) -> str:
        return self.url

    def exists(self) -> bool:
        """Whether it is there."""
        system, path = self._place()
        return bool(system.get_file_info(path).type)

    def read_text(self, errors: str = "strict") -> str:
        """What the file has; raises FileNotFoundError."""
        system, path = self._place()
        with system.open_input_stream(path) as file:
            return cast("bytes", file.read()).decode(errors=errors)

    def write_text(self, text: str) -> None:
        """Replace the file; readers of an object store see the old or the new one."""
        system, path = self._place()
        with system.open_output_stream(path) as file:
            file.write(text.encode())

    def mkdir(self, **_: bool) -> None:
        """Make the folder, with those that it is in."""
        system, path = self._place()
        system.create_dir(path, recursive=True)

    def iterdir(self) -> Iterator[Remote]:
        """What is directly in the folder; nothing if there is none."""
        return iter(self / name for name in self._under(recursive=False))

    def sizes(self) -> dict[str, int]:
        """The files in the folder and below, by their relative path, in bytes."""
        return {name: size for name, size in self._under(recursive=True).items() if size is not None}

    def remove(self) -> None:
        """Delete the folder with all that is in it, if it exists."""
        if self.exists():
            system, path = self._place()
            system.delete_dir(path)

    def _under(self, *, recursive: bool) -> dict[str, int | None]:
        from pyarrow.fs import FileSelector  # noqa: PLC0415 - a third of a second, for few deployments

        system, path = self._place()
        files = system.get_file_info(FileSelector(path, allow_not_found=True, recursive=recursive))
        return {str(PurePosixPath(file.path).relative_to(path)): file.size for file in files}

    def _place(self) -> tuple[FileSystem, str]:
        scheme, host, path, _, _ = urlsplit(self.url)
        system, root = _file_system(f"{_AS_PYARROW.get(scheme, scheme)}://{host}")
        return system, root + path


@cache
def _file_system(root: str) -> tuple[FileSystem, str]:
    """The file system of a URL without a path, and how the paths in it begin."""
    from pyarrow.fs import FileSystem  # noqa: PLC0415

    return cast("tuple[FileSystem, str]", FileSystem.from_uri(root))


StateFolder = Path | Remote


def state_folder(settings: LogSettings) -> StateFolder:
    """The folder with the state of stream views, as HEADWATER_CHECKPOINTS says, or else in HEADWATER_STATE."""
    given = settings.checkpoints
    if not given:
        return settings.state.absolute() / "checkpoints"
    url = urlsplit(given)
    if url.scheme == "file":
        return Path(unquote(url.path))
    return Remote(given.rstrip("/")) if "://" in given else Path(given)


def location_of(folder: StateFolder) -> str:
    """Its URL for Spark, which does not decode an escaped "@"."""
    return folder.url if isinstance(folder, Remote) else f"file://{folder}"


def sizes(folder: StateFolder) -> dict[str, int]:
    """The files in the folder and below, by their relative path, in bytes; nothing if there is none."""
    if isinstance(folder, Remote):
        return folder.sizes()
    size_by_file: dict[str, int] = {}
    for file in folder.rglob("*"):
        try:
            if file.is_file():
                size_by_file[file.relative_to(folder).as_posix()] = file.stat().st_size
        except FileNotFoundError:  # Spark deletes old versions meanwhile
            continue
    return size_by_file


def names(folder: StateFolder) -> list[str]:
    """The names of what is directly in the folder; none if there is no such folder."""
    try:
        return [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []


def remove(folder: StateFolder) -> None:
    """Delete the folder with all that is in it, if it exists. Raises OSError."""
    if isinstance(folder, Remote):
        folder.remove()
    elif folder.exists():
        shutil.rmtree(folder)


NOTE_S: Final = 60.0
"""Between two notes of a running read side."""
FRESH_S: Final = 10 * NOTE_S
"""A read side that was not seen for so long does not run: what is built elsewhere meanwhile hinders nobody."""


@dataclass(frozen=True)
class StatePlace:
    """A folder with the state of stream views. id: in a file of the folder, so it is the same on any machine and path.

    place: host and path, for people. age_s: since its read side was last seen.
    """

    id: str
    place: str
    age_s: float = 0.0

    @property
    def is_fresh(self) -> bool:
        """Whether its read side probably runs."""
        return self.age_s < FRESH_S


def known_id(settings: LogSettings) -> str | None:
    """The id of this process's folder; None if no read side has ever used it. Raises OSError."""
    try:
        return (state_folder(settings) / "id").read_text()
    except FileNotFoundError:
        return None


def own_place(settings: LogSettings) -> StatePlace:
    """The folder of this process, which gets an id if it has none. Raises OSError."""
    folder = state_folder(settings)
    file = folder / "id"
    if isinstance(file, Remote):
        if not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            file.write_text(uuid.uuid4().hex)  # of two processes, the last one decides; each reads it again below
        return StatePlace(file.read_text(), str(folder))
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f"{file.name}.{os.getpid()}.part")
        part.write_text(uuid.uuid4().hex)
        try:
            os.link(part, file)
        except FileExistsError:
            pass  # another process has made its id meanwhile: both read that one below, and a rename would replace it
        except OSError:  # some network disks have no links
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)
    return StatePlace(file.read_text(), f"{socket.gethostname()}:{settings.checkpoints or settings.state.absolute()}")


def others(settings: LogSettings, places: Sequence[StatePlace]) -> list[StatePlace]:
    """The folders of other read sides that probably run, the last seen first. Raises OSError."""
    own = known_id(settings)
    return sorted((place for place in places if place.is_fresh and place.id != own), key=lambda place: place.age_s)


def why_not_here(settings: LogSettings, places: Sequence[StatePlace]) -> str | None:
    """Why a stream view must not be built with the folder of this process, with what to do; None if it may.

    Raises OSError.
    """
    own = known_id(settings)
    if any(place.is_fresh and place.id == own for place in places) or not (running := others(settings, places)):
        return None
    first = running[0]
    variable = "HEADWATER_CHECKPOINTS" if settings.checkpoints else "HEADWATER_STATE"
    return (
        f"its query could not continue: the running read side keeps the state of stream views at {first.place}, and "
        f"this process at {settings.checkpoints or settings.state.absolute()}: run this there, with its {variable}; or "
        f"stop that read side for good, and run this again after {FRESH_S / 60:.0f} minutes"
    )


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StreamReport:
    """Since the generation was begun; a batch that is repeated after a crash may count twice.

    batch: number of the last batch, and its duration.
    records: read, heartbeats included.
    amending, dropped: late observations that were taken in, and that were left out.
    unreadable: records that were left out.
    lost: rows that Spark dropped although the rule of lateness admits them.
    state: of the query, in the last batch.
    watermark: as Spark writes it; empty if there is none.
    starting: since the start of the query or its process, no batch has ended.
    failure: why the query stopped, or could not start; empty once a later attempt has held (see Watched.has_held).
    state_lost: why it cannot continue, after "its state", so that the view must be computed again; else empty.
    """

    batch: int = -1
    batch_s: float = 0.0
    records: int = 0
    amending: int = 0
    dropped: int = 0
    unreadable: int = 0
    lost: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    watermark: str = ""
    starting: bool = False
    failure: str = ""
    state_lost: str = ""

    def text(self) -> str:
        """One line for people."""
        parts = [
            f"batch {self.batch} took {self.batch_s:.1f} s",
            f"{self.records:,} records, {self.amending:,} late and taken in, {self.dropped:,} late and dropped, "
            f"{self.unreadable:,} unreadable",
            f"state of {self.state_rows:,} rows, {self.state_bytes / 1e6:.1f} MB",
            f"watermark {self.watermark or 'none'}",
        ]
        parts += ["starting"] if self.starting else []
        parts += [f"FAILED: {self.failure}"] if self.failure else []
        return "; ".join([*parts, *([f"{self.lost:,} rows LOST behind the watermark"] if self.lost else [])])


def read_report(settings: LogSettings, tag: str) -> StreamReport | None:
    """The report of the generation with this tag; None if its query has not run on this machine."""
    try:
        report_found = json.loads(_file(settings, tag).read_text())
        return StreamReport(**{field.name: report_found[field.name] for field in fields(StreamReport)})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        log.warning("cannot read the report of %s: %s", tag, error)
        return None


def write_report(settings: LogSettings, tag: str, report: StreamReport | None) -> None:
    """Replace the report; None: there is none any more. If it cannot be written, that is logged."""
    file = _file(settings, tag)
    try:
        if report is None:
            file.unlink(missing_ok=True)
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")
        part.write_text(json.dumps(asdict(report)))
        part.replace(file)
    except OSError as error:
        log.warning("cannot write the report of %s: %s", tag, error)


def note_start(settings: LogSettings, tag: str) -> StreamReport:
    """Note in the report that the query or its process starts, and return it: until a batch has ended, its view is not
    stalled, since the first batch reads all that came in the meantime."""
    report = replace(read_report(settings, tag) or StreamReport(), starting=True, state_lost="")
    write_report(settings, tag, report)
    return report


def note_failure(settings: LogSettings, tag: str, cause: str, state_lost: str = "") -> None:
    """Note in the report why the query does not run: it failed, or could not be started.

    state_lost: see StreamReport.
    """
    report = read_report(settings, tag) or StreamReport()
    write_report(settings, tag, replace(report, starting=False, failure=cause, state_lost=state_lost))


def recomputed(view: str) -> str:
    """What happens to a view whose state is lost."""
    return f"`headwater projections` computes the view again; or run `replay rebuild {view}`"


def _file(settings: LogSettings, tag: str) -> Path:
    return settings.state.absolute() / "streams" / settings.environment / f"{tag}.json"
