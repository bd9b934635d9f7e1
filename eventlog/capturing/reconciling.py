"""Compares what is with what is declared: the one place that says which rows of a source may be wrong, and why.

`apply` mends what it finds; `status` and `watch` name it. A log of changes does not have all of them: TRUNCATE, ALTER
TABLE, partitions that come and go, and tables that are replaced change rows without a word. So how each table is stored
is noted before its rows are read, and compared from then on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import msgspec

from headwater.eventlog.capturing import control_notes, control_topics
from headwater.eventlog.capturing.connector import captures
from headwater.eventlog.capturing.control_notes import DATA_COLLECTIONS
from headwater.eventlog.capturing.declaring import Captured, Source
from headwater.eventlog.capturing.naming import SourceNames
from headwater.eventlog.capturing.ports import GONE, Database, Layout, Missed, StoredOffset
from headwater.eventlog.capturing.uncaptured_statements import Searched, find_uncaptured
from headwater.eventlog.capturing.unread_tables import Unread, find_unread, problem_of, with_rows
from headwater.eventlog.settings import LogSettings


@dataclass(frozen=True, slots=True)
class Findings:
    """What of a source is not as declared, as far as rows are concerned.

    unread: whose rows are missing. missed: changes of tables that the log of the database does not have. layouts: how
    the tables are stored now.
    """

    source: Source
    unread: Unread
    missed: Mapping[str, Sequence[Missed]] = field(default_factory=dict)
    layouts: Mapping[str, Layout] = field(default_factory=dict)

    def late(self) -> list[type[Captured]]:
        """Tables that were declared or changed later, and not read."""
        due = self.unread.late | self.unread.lost
        return [table for table in self.source.tables if table.table in due]

    def changed(self) -> list[type[Captured]]:
        """Tables whose rows are to be read again."""
        return [each for each in self.source.tables if any(one.reads for one in self.missed.get(each.table, ()))]

    def unswept(self) -> list[type[Captured]]:
        """Tables whose topics may have rows that are gone."""
        return [
            each
            for each in self.source.tables
            if each.table in self.unread.unswept or any(one.sweeps for one in self.missed.get(each.table, ()))
        ]

    def problems(self) -> list[str]:
        """What is not as declared, each with what helps."""
        return [problem for table in self.source.tables for problem in self._problems(table.table)]

    def _problems(self, table: str) -> Iterator[str]:
        if problem := problem_of(self.source, table, self.unread):
            yield problem
        for each in self.missed.get(table, ()):
            yield (
                f'table "{table}" {each.why}, of which the log of the database has no changes: run '
                "headwater sources apply, which reads its rows again, and deletes those that are gone"
            )
        if table in self.unread.unswept:
            yield (
                f'the topic of table "{table}" may have rows that were deleted while they were not captured: once its '
                f"snapshot is completed, run headwater sources sweep {self.source.name}"
            )


def reconcile(
    log: LogSettings,
    names: SourceNames,
    source: Source,
    offset: StoredOffset,
    config: Mapping[str, str] | None,
    database: Database | None,
) -> Findings:
    """Find what is not as declared, and note what is new of tables that are; raises SourceProblem or LogUnavailable.

    offset, config: of the connector, as far as there is one. database: None if it does not answer, so that only the log
    is known.
    """
    unread = find_unread(log, names, source, offset)
    declared = {table.table for table in source.tables}
    missed: dict[str, Sequence[Missed]] = {name: each for name, each in unread.missed.items() if name in declared}
    if config is None or database is None:
        return Findings(source, unread, missed)
    found, kept = database.layouts(), dict[str, Layout]()
    new = dict[str, list[Missed]]()
    for name, now in found.items():
        if not captures(config, name):
            continue
        noted = unread.layouts.get(name)
        if changes := database.missed(noted or now, now):
            new[name] = list(changes)
        if (layout := _kept(noted or now, now)) != noted:
            kept[name] = layout
    stated, searched = find_uncaptured(log, source, unread.searched)
    for name in stated.keys() & found.keys():
        if captures(config, name):
            new[name] = [*new.get(name, ()), *stated[name]]
    _note_missed(log, names, new, searched if searched != unread.searched else None)
    if kept:
        note_layouts(log, names, kept)
    for name, found_now in new.items():
        missed[name] = list(dict.fromkeys([*missed.get(name, ()), *found_now]))
    return Findings(source, unread, missed, found)


def _note_missed(
    log: LogSettings, names: SourceNames, missed: Mapping[str, Sequence[Missed]], searched: Searched | None
) -> None:
    """Note what was missed first, and keep it: a change may be undone, and leave rows behind, before it is mended."""
    if missed:
        changes = {name: msgspec.to_builtins(each) for name, each in missed.items()}
        control_topics.note(log, names, control_notes.MISSED, {DATA_COLLECTIONS: changes})
    if searched is not None:
        control_topics.note(log, names, control_notes.SEARCHED, asdict(searched))


def note_read(
    log: LogSettings, names: SourceNames, source: Source, again: Collection[str], swept: Collection[str]
) -> None:
    """Note statements that a connector has stored before it reads tables again: these rows are what they left.

    again, swept: the tables that are about to be read, and those that are swept. Raises LogUnavailable.
    """
    before = control_topics.notes(log, names).searched
    stated, searched = find_uncaptured(log, source, before)
    left = {
        name: [each for each in missed if (each.reads and name not in again) or (each.sweeps and name not in swept)]
        for name, missed in stated.items()
    }
    left = {name: missed for name, missed in left.items() if missed}
    _note_missed(log, names, left, searched if searched != before else None)


def note_mending(
    log: LogSettings,
    names: SourceNames,
    found: Findings,
    again: Sequence[str],
    new: Sequence[type[Captured]],
    database: Database,
) -> set[str]:
    """Note that tables are to be read again, and which are to be swept; changes after that are found as such.

    again: that are to be read. new: of these, the ones that were not captured before. Returns the tables to be swept,
    beside those that were to be before.
    """
    layouts = database.layouts()
    if again:
        control_topics.note_unread(log, names, again)
    unswept = [name for name, missed in found.missed.items() if any(each.sweeps for each in missed)]
    if unswept := unswept + with_rows(log, new):
        control_topics.note(log, names, control_notes.UNSWEPT, {DATA_COLLECTIONS: unswept})
    kept = {}
    for name, layout in layouts.items():
        # a publication that is altered for other tables is not what makes a table unlike itself
        now = _published(found.layouts.get(name, layout), layout)
        kept[name] = now if name in again else _kept(found.unread.layouts.get(name, now), now)
    if kept:
        note_layouts(log, names, kept)
    if found.missed:
        control_topics.note(log, names, control_notes.MENDED, {DATA_COLLECTIONS: sorted(found.missed)})
    return set(unswept)


def note_layouts(log: LogSettings, names: SourceNames, layouts: Mapping[str, Layout]) -> None:
    """Note how tables are stored; raises LogUnavailable."""
    noted = {name: msgspec.to_builtins(_kept(layout, layout)) for name, layout in layouts.items()}
    control_topics.note(log, names, control_notes.LAYOUTS, {DATA_COLLECTIONS: noted})


def _kept(was: Layout, now: Layout) -> Layout:
    """What is noted of a layout. A column that is gone stays so: it, or another one, may get its name back."""
    return msgspec.structs.replace(
        now,
        parts={
            number: msgspec.structs.replace(part, is_empty=False, is_created=False)
            for number, part in now.parts.items()
        },
        columns={**dict.fromkeys(was.columns, GONE), **now.columns},
        labels={**was.labels, **now.labels},
    )


def _published(was: Layout, now: Layout) -> Layout:
    return msgspec.structs.replace(was, published=now.published)
