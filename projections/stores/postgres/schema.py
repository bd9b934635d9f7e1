"""The SQL of the PostgreSQL store: a generation's table, its indexes and ledger, and how rows are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from zlib import crc32

from headwater.eventlog.personal.sealed_text import KEY_ID, START
from headwater.projections.stores.clear_columns import KEYS
from headwater.projections.stores.declared import Postgres, PostgresWithPersons
from headwater.projections.stores.names import table_name
from headwater.projections.stores.store import Target
from headwater.projections.table.expiry import Expiry
from headwater.projections.table.layout import DELETED
from headwater.projections.table.types import ByType, ColumnType
from headwater.projections.view import View

_SEALED: Final = f'"{START}'
_BETWEEN: Final = f"(?=:|^).*?(?:{_SEALED}(?={KEY_ID}:)|$)"
"""What is between two ids: so the parts of a column that it splits are ids, and nothing that is longer than an index
takes, whatever somebody writes into a text. It begins with a constraint, because PostgreSQL takes the longest match if
the first part is an alternative."""

SAFE_INDEX_BYTES: Final = 2_500
"""An index entry with at most so many bytes of values fits: its limit of 2,704 includes a header and padding."""
SCHEMA = """
-- what each generation has applied from each partition of `patches`
CREATE TABLE IF NOT EXISTS {schema}.ledger (
    view       text NOT NULL,
    generation integer NOT NULL,
    partition  integer NOT NULL,
    next       bigint NOT NULL,
    applied    jsonb NOT NULL,
    PRIMARY KEY (view, generation, partition)
) WITH (fillfactor = 50);
"""
# the columns that generations have in plaintext; erased: the number of the last erasure whose keys no row shows
CLEAR_SCHEMA = """
CREATE TABLE IF NOT EXISTS {schema}._clear_columns (
    view       text NOT NULL,
    generation integer NOT NULL,
    columns    text[] NOT NULL,
    erased     bigint NOT NULL,
    PRIMARY KEY (view, generation)
);
"""
ADD_CLEAR = "INSERT INTO {schema}._clear_columns (view, generation, columns, erased) VALUES (%s, %s, %s, %s)"
DROP_CLEAR = "DELETE FROM {schema}._clear_columns WHERE view = %s AND generation = %s"
# none if somebody dropped the table of a generation, or if it has no primary key, which comes after the last row of
# bulk: only a rebuild helps
READ_LEDGERS = """
SELECT view, generation, partition, next, applied
FROM {schema}.ledger
JOIN unnest(%s::text[], %s::integer[], %s::text[]) AS wanted(view, generation, rows) USING (view, generation)
WHERE EXISTS (SELECT FROM pg_index WHERE indrelid = to_regclass(wanted.rows) AND indisprimary)
"""
# locked in the order of the primary key, so that two loaders never deadlock
LOCK_LEDGERS = """
SELECT ledger.view, ledger.generation, ledger.partition, next, applied
FROM {schema}.ledger
JOIN unnest(%s::text[], %s::integer[]) AS wanted(view, generation) USING (view, generation)
WHERE partition = ANY(%s)
ORDER BY ledger.view, ledger.generation, ledger.partition
FOR UPDATE OF ledger
"""
WRITE_LEDGERS = """
UPDATE {schema}.ledger AS ledger SET next = fresh.next, applied = fresh.applied
FROM json_to_recordset(%s::json) AS fresh(view text, generation integer, partition integer, next bigint, applied jsonb)
WHERE (ledger.view, ledger.generation, ledger.partition) = (fresh.view, fresh.generation, fresh.partition)
"""
CREATE_LEDGER = """
INSERT INTO {schema}.ledger (view, generation, partition, next, applied) VALUES (%s, %s, %s, %s, %s)
"""
DROP_LEDGER = "DELETE FROM {schema}.ledger WHERE view = %s AND generation = %s"


def quoted(column: str) -> str:
    """A column of JSON as its text: each sealed text in it begins with a quote."""
    return f'"{column}"'


def begun_with_quote(column: str) -> str:
    """The text of a column that is one sealed text, or JSON with some, so that each of them begins with a quote."""
    return f"""('"' || "{column}")"""


def sealed_with_any(text: str) -> str:
    """The condition that a text has one that is sealed with one of some keys; its parameter is their ids."""
    return f"({_keys_in(text)} && %s::text[] AND {_has_any(text)})"


def sealed_index(texts: Sequence[str]) -> str:
    """What follows CREATE INDEX … ON a table: rows without ciphertexts are not in the index."""
    return f"USING gin ({', '.join(map(_keys_in, texts))}) WHERE {' OR '.join(map(_has_any, texts))}"


def _keys_in(text: str) -> str:
    return f"regexp_split_to_array({text}, '{_BETWEEN}')"


def _has_any(text: str) -> str:
    return f"strpos({text}, '{_SEALED}') > 0"


class _ColumnTypes(ByType[str]):
    def of_decimal(self, kind: ColumnType) -> str:
        return f"numeric({kind.digits},{kind.places})"  # as PostgreSQL writes it in its catalog


COLUMN_TYPES: Mapping[ColumnType, str] = _ColumnTypes(
    {
        ColumnType.TEXT: "text",
        ColumnType.INTEGER: "bigint",
        ColumnType.FLOAT: "double precision",
        ColumnType.BOOLEAN: "boolean",
        ColumnType.TIME: "timestamptz",
        ColumnType.POINT: "point",
        ColumnType.JSON: "text",
        ColumnType.LIST: "json",  # jsonb has other numbers: 1e22 is an integer there
        ColumnType.COUNTS: "text",
        ColumnType.SKETCH: "text",
        ColumnType.ENTRIES: "text",
        ColumnType.DATE: "date",
        ColumnType.UUID: "uuid",
    }
)


def create_table(schema: str, target: Target) -> str:
    """The table of a generation, without keys and indexes, because the bulk load comes first."""
    view = target.view
    columns = [f'"{view.key_name}" text COLLATE "C" NOT NULL']
    for field in view.layout.fields:
        collation = ' COLLATE "C"' if field.ordering and field.type is ColumnType.TEXT else ""
        columns.append(f'"{field.name}" {COLUMN_TYPES[field.type]}{collation}')
    columns += [f'"{name}" {COLUMN_TYPES[view.types[name]]}' for name in view.layout.derived]
    columns += [f'"{name}" {kind}' for name, kind in clear_types(view).items()]
    created = f"CREATE TABLE {_table(schema, target)} ({', '.join(columns)}) WITH (fillfactor = 80)"
    # PostgreSQL would keep some values of a column as its statistics, where no erasure finds them
    uncounted = ", ".join(f'ALTER "{name}" SET STATISTICS 0' for name in clear_types(view))
    return f"{created}; ALTER TABLE {_table(schema, target)} {uncounted}" if uncounted else created


def index_statements(schema: str, target: Target) -> list[str]:
    """The primary key, then the secondary indexes that the view declares."""
    view, table = target.view, table_name(*target.id)
    statements = [f'ALTER TABLE {_table(schema, target)} ADD CONSTRAINT "{table}_pk" PRIMARY KEY ("{view.key_name}")']
    for number, columns in enumerate(indexes_of(target)):
        statements.append(f"CREATE INDEX {index_definition(schema, target, f'{table}_i{number}', columns)}")
    if texts := sealed_texts(target):
        statements.append(f"CREATE INDEX {sealed_definition(schema, target, texts)}")
    if clear_types(view):
        statements.append(f'CREATE INDEX "{table}_c" ON {_table(schema, target)} USING gin ("{KEYS}")')
    statements.append(f"ANALYZE {_table(schema, target)}")
    return statements


def without_long_rows(schema: str, target: Target) -> list[str]:
    """Copy the table without the rows that may be too long for the primary key or an index, and return their keys.

    A new index also reads rows that were deleted a moment ago. The size of a value is that of its compressed form, as
    in the index.
    """
    sizes = [
        " + ".join(f'coalesce(pg_column_size("{column.removeprefix("-")}"), 0)' for column in columns)
        for columns in ((target.view.key_name,), *indexes_of(target))
    ]
    long = " OR ".join(f"{size} > {SAFE_INDEX_BYTES}" for size in sizes)
    table, name = _table(schema, target), f"{table_name(*target.id)}_l"
    return [
        f'ALTER TABLE {table} RENAME TO "{name}"',
        create_table(schema, target),
        f'INSERT INTO {table} SELECT * FROM "{schema}"."{name}" WHERE NOT ({long})',  # noqa: S608
        f'SELECT "{target.view.key_name}" FROM "{schema}"."{name}" WHERE {long}',  # noqa: S608
        f'DROP TABLE "{schema}"."{name}"',
    ]


def index_definition(schema: str, target: Target, name: str, columns: Sequence[str]) -> str:
    """What follows CREATE INDEX for an index with this name."""
    return f'"{name}" ON {_table(schema, target)} ({", ".join(map(_indexed, columns))})'


def sealed_texts(target: Target) -> Sequence[str]:
    """By whose ciphertexts rows are found, as SQL: of all events, and of stream views, whose rows no event names."""
    declared = target.view.store("postgres")
    if isinstance(declared, PostgresWithPersons):
        return [quoted(declared.sealed)]
    return [begun_with_quote(column) for column in sorted(target.view.personal)] if target.view.has_own_query else []


def sealed_definition(schema: str, target: Target, texts: Sequence[str]) -> str:
    """What follows CREATE INDEX for the index of these rows."""
    return f'"{sealed_name(target)}" ON {_table(schema, target)} {sealed_index(texts)}'


def sealed_name(target: Target) -> str:
    """The name of this index. A stream view may get a sealed column without a new version, and then another index."""
    columns = ",".join(sorted(target.view.personal)) if target.view.has_own_query else ""
    return f"{table_name(*target.id)}_s{f'{crc32(columns.encode()):08x}' if columns else ''}"


def indexes_of(target: Target) -> Sequence[Sequence[str]]:
    """The columns of each index that the view declares, and of the one for the order in which its rows are listed."""
    declared = target.view.store("postgres")
    if not isinstance(declared, Postgres):
        return ()
    indexes = [[_in_table(column, declared.clear) for column in columns] for columns in declared.indexes]
    first = target.view.key_order[0]
    needs_own = first != target.view.key_name and not any(columns[0] == first for columns in indexes)
    return [*indexes, [first]] if needs_own else indexes


def clear_name(column: str) -> str:
    """The name in the table of what a column has in plaintext; the column itself has the sealed text."""
    return f"_clear_{column}"


def clear_types(view: View) -> dict[str, str]:
    """The types of the plaintext columns, and of their keys, by name in the table; empty if the view has none."""
    declared = view.store("postgres")
    if declared is None or not declared.clear:
        return {}
    return {**{clear_name(name): "text" for name in declared.clear}, KEYS: "text[]"}


def _in_table(column: str, clear: Sequence[str]) -> str:
    """A column of an index by its name in the table."""
    name = column.removeprefix("-")
    return column[: len(column) - len(name)] + (clear_name(name) if name in clear else name)


def _indexed(column: str) -> str:
    """A column of an index, in the order in which queries sort by it: nulls last in both directions."""
    name = f'"{column.removeprefix("-")}"'
    return f"{name} DESC NULLS LAST" if column.startswith("-") else name


def count_rows(schema: str, target: Target) -> str:
    """The number of rows that bulk has written; a row is counted again if its task was repeated."""
    return f"SELECT count(*) FROM {_table(schema, target)}"  # noqa: S608


def drop_duplicates(schema: str, target: Target) -> str:
    """Delete duplicate rows that a repeated bulk task wrote; they are equal."""
    table, key = _table(schema, target), target.view.key_name
    return f'DELETE FROM {table} AS a USING {table} AS b WHERE a."{key}" = b."{key}" AND a.ctid > b.ctid'  # noqa: S608


def publish_query(schema: str, target: Target) -> str:
    """The SQL view under the alias: the visible columns of the rows that are not deleted or expired."""
    view = target.view
    clear = clear_types(view)
    shown = {name: clear_name(name) for name in view.types if clear_name(name) in clear}
    listed = ", ".join(f'"{shown[name]}" AS "{name}"' if name in shown else f'"{name}"' for name in view.types)
    conditions = [f'NOT coalesce("{DELETED}", false)'] if view.layout.marks_deleted else []
    conditions += [not_expired(view.expiry)] if view.expiry is not None else []
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {listed} FROM {_table(schema, target)}{where}"  # noqa: S608


def not_expired(expiry: Expiry) -> str:
    """What a row fulfils that is not expired; a day is compared as its midnight in UTC, in any zone of a session."""
    now = "now()" if expiry.kind is ColumnType.TIME else "(now() AT TIME ZONE 'UTC')"
    # PostgreSQL shows this form in its catalog, where `other_expiry` finds column and seconds
    lasts = f"make_interval(secs => {int(expiry.after.total_seconds())})"
    return f'("{expiry.column}" > {now} - {lasts}) IS NOT FALSE'


def upsert(schema: str, target: Target) -> str:
    """Write rows, given as a JSON list of objects, into the table.

    JSON takes less than half of the time that one array per column takes.
    """
    view, fields = target.view, target.view.layout.fields
    types = {view.key_name: "text", **{field.name: COLUMN_TYPES[field.type] for field in fields}}
    types |= {name: COLUMN_TYPES[view.types[name]] for name in view.layout.derived}
    types |= clear_types(view)
    columns = ", ".join(f'"{name}"' for name in types)
    record = ", ".join(f'"{name}" {kind}' for name, kind in types.items())
    assignments = ", ".join(f'"{name}" = excluded."{name}"' for name in types if name != view.key_name)
    return (
        f"INSERT INTO {_table(schema, target)} ({columns}) "  # noqa: S608
        f"SELECT {columns} FROM json_to_recordset(%s::json) AS patch({record}) "
        f'ON CONFLICT ("{view.key_name}") DO UPDATE SET {assignments}'
    )


def _table(schema: str, target: Target) -> str:
    return f'"{schema}"."{table_name(*target.id)}"'
