"""The tasks of a fold: some fold ranges of the log, others combine their rows and write them. Any process can run one.

Rows pass from the first to the second in encoded chunks, each with rows of one bucket. The key decides the bucket, so
that a task with all chunks of a bucket has all of its rows.
"""

from __future__ import annotations

import gc
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple, Protocol

import msgspec
from confluent_kafka import Message

from headwater.eventlog.envelope import partition_of
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.source_positions import topic_and_partition
from headwater.projections.folding.combining import Combined, decoder, encode, grouped, on_disk
from headwater.projections.limits import (
    CHECKED_RECORDS,
    ENTRIES_IN_MEMORY,
    GROUP_BYTES,
    MAX_SHARERS,
    ROWS_IN_MEMORY,
    SHARE_BYTES,
)
from headwater.projections.reading.fold_records import Erased, FoldedView, Folder, Part, Rows, Times
from headwater.projections.reading.program import Decoders, Program
from headwater.projections.reading.records import Letter
from headwater.projections.stores.store import BulkWriter

if TYPE_CHECKING:
    from headwater.projections.generations.rebuild.engine import Ranges
    from headwater.projections.view import View

READ_BYTES: Final = 8 * 1024 * 1024
"""Records that are folded between two counts of rows."""


@dataclass(frozen=True)
class FoldTask:
    """A part of the fold of some views.

    decoders, alone: see Folder.
    erased: events to leave out.
    buckets: their number, per view.
    path: the file for its chunks; None: they stay in memory.
    """

    decoders: Decoders
    programs: Sequence[Program]
    settings: LogSettings
    parts: Sequence[Part]
    times: Times
    erased: Erased
    buckets: int
    path: Path | None = None
    alone: Sequence[Decoders] = ()


class Chunk(NamedTuple):
    """The place of some encoded rows: of a view, by its number in the task, and of one of its buckets."""

    view: int
    bucket: int
    start: int
    size: int


class Share(msgspec.Struct, kw_only=True):
    """What a task folded.

    path: the file of its chunks; None: `content` has them. tombstones: by source and key, the offset of the last.
    letters: by view, of records that it cannot read, the first of `poison`. events: by source, their number.
    """

    path: str | None
    content: bytes = b""
    chunks: list[Chunk] = []
    tombstones: dict[str, dict[bytes, int]] = {}
    letters: list[list[Letter]] = []
    poison: list[int] = []
    events: dict[str, int] = {}


class Written(NamedTuple):
    """Rows that were written. refused: by writer, the keys of those that its store refused, which are not written."""

    rows: int = 0
    refused: tuple[frozenset[str], ...] = ()

    @classmethod
    def together(cls, several: Iterable[Written]) -> Written:
        """What several tasks wrote."""
        rows, refused = 0, tuple[frozenset[str], ...]()
        for written in several:
            rows += written.rows
            refused = tuple(a | b for a, b in zip_longest(refused, written.refused, fillvalue=frozenset[str]()))
        return cls(rows, refused)


class Piece(NamedTuple):
    """A chunk on its way to a task that writes: in a file, or (path None) here."""

    path: str | None
    start: int
    size: int
    content: bytes


def fold(task: FoldTask, on_records: Callable[[int], None]) -> Iterator[Share]:
    """Fold parts of the log; on_records: called with the number of records read since.

    Yields one share, or without a file several: each has some of the rows, and the last has the rest of what was found.
    Raises LogUnavailable and DiskFull.
    """
    folder, unchecked = Folder(FoldedView, task.decoders, task.programs, task.times, task.erased, task.alone), 0
    folds, most = folder.views, ROWS_IN_MEMORY // min(MAX_SHARERS, len(task.programs))
    with chunks(task.path, task.buckets) as held, _without_collection(), closing(KafkaLog(task.settings)) as log:
        records = (
            (part.source, messages)
            for part in task.parts
            for batch in log.batches(*topic_and_partition(part.source), part.start, part.end)
            for messages in _of_size(batch)
        )
        for source, messages in records:
            folder.add(source, messages)
            on_records(len(messages))
            unchecked += len(messages)
            for view, view_fold in enumerate(folds):
                if len(view_fold.made) > most or (
                    unchecked > CHECKED_RECORDS and view_fold.entries() > ENTRIES_IN_MEMORY // len(folds)
                ):
                    held.add(view, view_fold.drain())
                    yield from held.full()
            if unchecked > CHECKED_RECORDS:
                unchecked = 0
        for view, view_fold in enumerate(folds):
            held.add(view, view_fold.drain())
        letters, poison = [folder.letters for folder in folds], [folder.poison for folder in folds]
        yield held.share(tombstones=folder.tombstones, letters=letters, poison=poison, events=folder.events)


def _of_size(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """Parts of a batch, of READ_BYTES at most: rows are counted between them, and a large event can make many."""
    if len(messages) <= 1 or sum(map(len, messages)) <= READ_BYTES:
        yield messages
        return
    half = len(messages) // 2
    yield from _of_size(messages[:half])
    yield from _of_size(messages[half:])


def write(program: Program, writers: Sequence[BulkWriter], pieces: Iterable[Piece]) -> Written:
    """Combine all rows of some buckets, and write them to every store.

    Raises DiskFull, and what the writers raise.
    """
    # Arrow is large, and a fold needs none
    from headwater.projections.folding.writing import batches, write_rows  # noqa: PLC0415

    with Combined(program) as combined:
        with _without_collection():
            for piece, rows in _decoded(pieces):
                combined.add(rows, piece.size, None if piece.path is None else Path(piece.path).parent)
        if combined.is_empty:
            return Written()
        with grouped(program, combined) as items:
            return write_rows(writers, lambda unfit: batches(program, items(), unfit))


def pieces_of(share: Share, view: int) -> list[tuple[int, Piece]]:
    """The pieces of a share that belong to this view, each with its bucket."""
    return [
        (bucket, Piece(share.path, start, size, share.content[start : start + size] if share.path is None else b""))
        for of, bucket, start, size in share.chunks
        if of == view
    ]


def groups(shares: Sequence[Share], view: int, program: Program, at_least: int) -> list[list[Piece]]:
    """The pieces for each task that writes: whole buckets, of GROUP_BYTES together, and at least so many tasks.

    One task has them all if their rows change common groups.
    """
    if program.retraction is not None:
        pieces = [piece for share in shares for _, piece in pieces_of(share, view)]
        return [pieces] if pieces else []
    buckets: dict[int, list[Piece]] = {}
    for share in shares:
        for bucket, piece in pieces_of(share, view):
            buckets.setdefault(bucket, []).append(piece)
    total = sum(piece.size for pieces in buckets.values() for piece in pieces)
    most = min(GROUP_BYTES, -(-total // at_least))
    piece_groups: list[list[Piece]] = []
    held = most
    for pieces in buckets.values():
        if held >= most:
            piece_groups.append([])
            held = 0
        piece_groups[-1] += pieces
        held += sum(piece.size for piece in pieces)
    return piece_groups


class Chunks:
    """Encodes rows into chunks, one after the other."""

    def __init__(self, sink: BinaryIO, path: Path | None, buckets: int) -> None:
        self._sink, self._path, self._buckets = sink, path, buckets
        self._chunks: list[Chunk] = []
        self._end = 0

    def add(self, view: int, rows: Rows) -> None:
        """Encode rows, a chunk for each bucket."""
        by_bucket: dict[int, Rows] = {}
        for key, row in rows.items():
            by_bucket.setdefault(partition_of(key, self._buckets) if self._buckets > 1 else 0, {})[key] = row
        for bucket, some in by_bucket.items():
            encoded = encode(some)
            self._sink.write(encoded)
            self._chunks.append(Chunk(view, bucket, self._end, len(encoded)))
            self._end += len(encoded)

    def full(self) -> Iterator[Share]:
        """A share, if there is no file and memory should not take more."""
        if self._path is None and self._end >= SHARE_BYTES:
            yield self.share()

    def share(self, **found: object) -> Share:
        """What was added since the last share."""
        content = self._sink.getvalue() if isinstance(self._sink, io.BytesIO) else b""
        path = None if self._path is None else str(self._path)
        result = Share(path=path, content=content, chunks=self._chunks, **found)  # type: ignore[arg-type]
        if self._path is None:
            self._sink.seek(0)
            self._sink.truncate()
            self._chunks, self._end = [], 0
        return result


@contextmanager
def chunks(path: Path | None, buckets: int) -> Iterator[Chunks]:
    """Chunks in a new file, or (None) in memory."""
    if path is None:
        yield Chunks(io.BytesIO(), path, buckets)
        return
    with on_disk(str(path.parent)), path.open("wb") as sink:
        yield Chunks(sink, path, buckets)


def _decoded(pieces: Iterable[Piece]) -> Iterator[tuple[Piece, Rows]]:
    decode = decoder(Rows).decode
    with ExitStack() as opened:
        files: dict[str, BinaryIO] = {}
        for piece in pieces:
            path = piece.path
            if path is None:
                yield piece, decode(piece.content)
                continue
            if path not in files:
                files[path] = opened.enter_context(Path(path).open("rb"))
            files[path].seek(piece.start)
            yield piece, decode(files[path].read(piece.size))


@contextmanager
def _without_collection() -> Iterator[None]:
    """Rows make no cycles, and looking for them takes a fifth of a fold."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def divided(parts: Sequence[Part], tasks: int) -> list[list[Part]]:
    """The parts for each task, about as many offsets for each; a large one is cut."""
    total = sum(part.end - part.start for part in parts)
    size = -(-total // tasks) if total else 0
    shares: list[list[Part]] = [[] for _ in range(tasks)]
    left, at = size, 0
    for source, begin, end in parts:
        start = begin
        while start < end:
            taken = min(left, end - start)
            shares[at].append(Part(source, start, start + taken))
            start, left = start + taken, left - taken
            if not left:
                left, at = size, min(at + 1, tasks - 1)
    return [share for share in shares if share]


class TaskFailed(Exception):
    """A task failed; the message says how."""


class Workers(Protocol):
    """Processes for one fold."""

    @property
    def size(self) -> int:
        """How many tasks run at a time."""

    @property
    def on_one_disk(self) -> bool:
        """Whether tasks and this process see the same files."""

    @property
    def read(self) -> int:
        """Records that were read so far, of all folds."""

    def refuses(self, program: Program, decoders: Decoders) -> str:
        """Why they cannot have this program of a view, or its decoders; empty if they can."""

    def fold(self, tasks: Sequence[FoldTask]) -> list[Share]:
        """Run tasks; raises TaskFailed."""

    def write(self, view: int, program: Program, shares: Sequence[Share], writers: Sequence[BulkWriter]) -> Written:
        """Combine the rows of a view, and write them; raises TaskFailed.

        view: its number in the tasks.

        Workers without a common disk write what they folded last, and what `shares` themselves contain.
        """


class SparkWorkers(Workers, Protocol):
    """Workers that also run real-time queries."""

    def patches(self, view: View, ranges: Ranges) -> Iterable[tuple[str, str, int]]:
        """Key, value and partition of the patches that a real-time view makes of these records, in their order."""
