"""The port of workers: processes that run the tasks of a fold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import Protocol

from headwater.projections.folding.erasures import Tombstones
from headwater.projections.folding.fold_records import Erased, UnclearRecord
from headwater.projections.folding.program import Program
from headwater.projections.folding.tasks import FoldTask, Letter, Share
from headwater.projections.folding.writing import Written
from headwater.projections.generations.rebuild.engine import Ranges
from headwater.projections.generations.registry.selection import Selection
from headwater.projections.stores.store import BulkWriter
from headwater.projections.table.patch import Patch
from headwater.projections.table.view import TableView
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

    def refuses(self, program: Program) -> str:
        """Why they cannot have this program; empty if they can."""

    def fold(self, tasks: Sequence[FoldTask]) -> list[Share]:
        """Run tasks; raises TaskFailed."""

    def write(self, view: int, program: Program, shares: Sequence[Share], writers: Sequence[BulkWriter]) -> Written:
        """Combine the rows of a view, and write them; raises TaskFailed.

        view: its number in the tasks.

        Workers without a common disk write what they folded last, and what `shares` themselves contain.
        """


class ReadBySpark(Protocol):
    """Called with a view and the reason why compiled source does not read some of its records."""

    def __call__(self, view: View, reason: str) -> SparkWorkers:
        """Workers that read them; raises BulkLoadFailed if there are none."""


class SparkWorkers(Workers, Protocol):
    """Workers that also read records as the live query does."""

    def fold_patches(self, view: TableView, ranges: Ranges, selection: Selection, task: FoldTask) -> list[Share]:
        """Fold the patches that the live query makes of the selected events.

        task: has a program that combines rows, what is erased, and a folder as its path.
        """

    def tombstones(self, ranges: Ranges) -> Tombstones:
        """Those in these ranges."""

    def patches_of(self, view: TableView, records: Sequence[UnclearRecord]) -> tuple[list[Patch], list[Letter]]:
        """What the live query makes of these records: patches, and the dead letters of unreadable records."""

    def row_patches(
        self, view: TableView, ranges: Ranges, selection: Selection, erased: Erased, keys: Set[str]
    ) -> Iterable[Patch]:
        """Patches of selected events that are not erased, in the order of each log partition. keys: see `table_key`."""

    def patches(self, view: View, ranges: Ranges) -> Iterable[tuple[str, str, int]]:
        """Key, value and partition of the patches of these events, in the order of each log partition."""
