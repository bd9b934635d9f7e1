"""How PostgreSQL stores captured tables, and what the log lacks if that has changed.

TRUNCATE, ALTER TABLE … TYPE … USING, VACUUM FULL and CLUSTER write all rows of a table anew, without a change in the
log. Nothing tells them apart afterwards, so each counts as the first one.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from headwater.eventlog.capturing.ports import Layout, Missed
from headwater.eventlog.capturing.postgres.database import CapturedDatabase
from headwater.eventlog.capturing.postgres.sql import LAYOUT


def read_layouts(database: CapturedDatabase) -> dict[str, Layout]:
    """How each declared table is stored now; raises SourceProblem."""
    publication, found = database.publication(), {}
    for table in database.source.tables:
        schema, name = table.table.split(".")
        row = database.row(
            LAYOUT, schema=schema, name=name, columns=list(table.columns), publication=database.names.slot
        )
        if row is not None:
            layout = msgspec.convert(row, Layout)
            # a column that is dropped is not left out: the check of columns names it
            is_published = publication is not None and publication.has(table.table, layout.columns)
            found[table.table] = layout if is_published else msgspec.structs.replace(layout, published="")
    return found


def missed(was: Layout, now: Layout) -> list[Missed]:
    """What was not captured of a table since it had the layout `was`. pg_upgrade keeps all numbers that count."""
    if was.table != now.table:
        return [Missed("was replaced by another one of the same name")]
    is_upgraded = was.version != now.version
    return [
        *([] if is_upgraded else (*_publication(was, now), *_name(was, now))),
        *_parts(was, now, is_upgraded),
        *_columns(was, now),
    ]


def _publication(was: Layout, now: Layout) -> Iterator[Missed]:
    if not now.published:
        yield Missed("is left out of its publication, or rows or columns of it are")
    elif was.published != now.published:
        yield Missed("was left out of its publication for a time, or the publication was changed or replaced")


def _name(was: Layout, now: Layout) -> Iterator[Missed]:
    if was.named != now.named:
        yield Missed("had another name, schema or owner for a time")


def _parts(was: Layout, now: Layout, is_upgraded: bool) -> Iterator[Missed]:
    gone = [part.name for number, part in was.parts.items() if number not in now.parts]
    if gone:
        yield Missed(f"has lost the rows of {', '.join(gone)}, which was detached or dropped", reads=False)
    for number, part in now.parts.items():
        before = was.parts.get(number)
        if before is None:
            if part.file and not part.is_empty and not _is_created(number, was, now):
                yield Missed(f"has got the rows of {part.name}, which was attached", sweeps=False)
        elif before.file != part.file:
            which = "" if len(now.parts) == 1 else f"{part.name} of it "
            yield Missed(f"had all rows {which}deleted or written anew, by TRUNCATE, ALTER TABLE or VACUUM FULL")
        elif before.attached != part.attached and not is_upgraded:
            yield Missed(f"was without {part.name} for a time")


def _is_created(number: str, was: Layout, now: Layout) -> bool:
    """Whether a part became one before it had rows: it was created as one, and so were those above that are new."""
    while number in now.parts and number not in was.parts:
        if not now.parts[number].is_created:
            return False
        number = now.parts[number].parent
    return True


def _columns(was: Layout, now: Layout) -> Iterator[Missed]:
    changed = [name for name, found in now.columns.items() if was.columns.get(name, found) != found]
    if changed:
        yield Missed(f"has other columns {', '.join(changed)} than before, or other types of them")
    if any(now.labels.get(number, label) != label for number, label in was.labels.items()):
        yield Missed("has an enum of which a value was renamed")
