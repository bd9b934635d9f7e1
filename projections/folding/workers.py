"""The port of workers: processes that run the tasks of a fold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from headwater.projections.folding.tasks import FoldTask, Share
from headwater.projections.folding.writing import Written
from headwater.projections.generations.rebuild.engine import Ranges
from headwater.projections.reading.decoders import Decoders
from headwater.projections.reading.program import Program
from headwater.projections.stores.store import BulkWriter
from headwater.projections.view import View


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
