"""How MariaDB and MySQL store captured tables, and what the binary log lacks as changes if that has changed.

InnoDB gives a table, or a partition, another number when it is truncated, rebuilt or made again, and takes the number
along when it is renamed. An account without the right PROCESS does not see numbers. MariaDB also says when a definition
was last written: by each ALTER TABLE, also one that keeps all rows, and by each RENAME.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final
from zlib import crc32

from headwater.eventlog.capturing.declaring import Captured
from headwater.eventlog.capturing.mysql.database import CapturedServer, quoted
from headwater.eventlog.capturing.mysql.sql import COLUMNS, INNODB_PARTS, TABLE, VERSION
from headwater.eventlog.capturing.ports import Layout, Missed, Part

_WHOLE: Final = ""
"""The only part of a table that has no partitions."""
_COUNTER: Final = re.compile(r" AUTO_INCREMENT=\d+")


def read_layouts(server: CapturedServer) -> dict[str, Layout]:
    """How each declared table is stored now, as far as the account sees it; raises SourceProblem."""
    version = int("".join(f"{int(part):02}" for part in re.findall(r"\d+", server.rows(VERSION)[0]["version"])[:3]))
    found = ((table.table, _layout(server, table, version)) for table in server.source.tables)
    return {name: layout for name, layout in found if layout is not None}


def sees_parts(server: CapturedServer) -> bool:
    """Whether the account sees the numbers of tables."""
    return server.try_rows(_parts_query(server), {"schema": "", "name": ""}) is not None


def missed(was: Layout, now: Layout) -> list[Missed]:
    """What was not captured of a table since it had the layout `was`."""
    return [*_parts(was, now), *_definition(was, now), *_columns(was, now)]


def _layout(server: CapturedServer, table: type[Captured], version: int) -> Layout | None:
    schema, name = table.table.split(".")
    place = {"schema": schema, "name": name}
    (stored, shown) = (server.rows(TABLE, place), server.try_rows(f"SHOW CREATE TABLE {quoted(table.table)}"))
    if not stored or not shown or "Create Table" not in shown[0]:
        return None
    columns = server.rows(COLUMNS, place)
    definition = _COUNTER.sub("", shown[0]["Create Table"])
    return Layout(
        version,
        0,
        parts=_read_parts(server, table, place),
        columns={
            each["name"]: (1, crc32(each["type"].lower().encode())) for each in columns if each["name"] in table.columns
        },
        named=str(stored[0]["created"] or ""),
        order=[each["name"] for each in columns],
        shown=hashlib.sha256(definition.encode()).hexdigest()[:16],
    )


def _read_parts(server: CapturedServer, table: type[Captured], place: dict[str, str]) -> dict[str, Part]:
    found = server.try_rows(_parts_query(server), place) or []
    names = [each["part"].rpartition("#")[2] for each in found]
    empty = _empty(server, table, names) if len(found) > 1 else set()
    return {
        each["part"]: Part(name or table.table, int(each["id"]), is_empty=name in empty)
        for each, name in zip(found, names, strict=True)
    }


def _empty(server: CapturedServer, table: type[Captured], names: Sequence[str]) -> set[str]:
    """Which partitions have no rows; one whose name the server encodes counts as if it had some."""
    plain = [name for name in names if name.isidentifier()]
    if not plain:
        return set()
    asked = ", ".join(
        f"(SELECT 1 FROM {quoted(table.table)} PARTITION (`{name}`) LIMIT 1) AS part_{number}"  # noqa: S608 - its own names
        for number, name in enumerate(plain)
    )
    found: list[dict[str, Any]] = server.rows(f"SELECT {asked}")
    return {name for number, name in enumerate(plain) if found[0][f"part_{number}"] is None}


def _parts_query(server: CapturedServer) -> str:
    return INNODB_PARTS[server.source.engine]


def _parts(was: Layout, now: Layout) -> Iterator[Missed]:
    if not was.parts or not now.parts:  # it was not seen, or is not of InnoDB
        return
    if was.parts.keys().isdisjoint(now.parts) or (
        _WHOLE in now.parts and was.parts[_WHOLE].file != now.parts[_WHOLE].file
    ):
        yield Missed(
            "was replaced by another one of the same name, or had all rows deleted or written anew, by TRUNCATE, ALTER "
            "TABLE or OPTIMIZE TABLE"
        )
        return
    if gone := [part.name for key, part in was.parts.items() if key not in now.parts]:
        yield Missed(f"has lost the partition {', '.join(gone)}", reads=False)
    for key, part in now.parts.items():
        if key not in was.parts:
            if not part.is_empty:
                yield Missed(f"has got the rows of the partition {part.name}", sweeps=False)
        elif was.parts[key].file != part.file:
            yield Missed(f"had all rows of the partition {part.name} exchanged, deleted or written anew")


def _definition(was: Layout, now: Layout) -> Iterator[Missed]:
    """An ALTER TABLE that only adds or only drops columns, or changes something else, explains a new definition.

    A server may say when a definition was written by the second only, or not at all.
    """
    if was.version != now.version:
        return
    if was.shown == now.shown:
        if was.named != now.named:
            yield Missed("had another name for a time, or was altered and altered back")
    elif not (_is_within(was.order, now.order) or _is_within(now.order, was.order)):
        yield Missed("had columns renamed or moved, or dropped and others added")


def _columns(was: Layout, now: Layout) -> Iterator[Missed]:
    changed = [name for name, found in now.columns.items() if was.columns.get(name, found) != found]
    if changed:
        yield Missed(f"has other columns {', '.join(changed)} than before, or other types of them")


def _is_within(some: Sequence[str], all_of_them: Sequence[str]) -> bool:
    """Whether these are in the others, in the same order."""
    rest = iter(all_of_them)
    return all(name in rest for name in some)
