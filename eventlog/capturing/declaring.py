"""The declaration of captured tables and of the database they are in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict

from headwater.eventlog.capturing.columns import KEY_KINDS, SIGNED_PARTS, Column, Hashed, Kind, column_of
from headwater.eventlog.capturing.errors import SourceDeclarationError, UnknownSource
from headwater.eventlog.programs.modules import by_name, find
from headwater.eventlog.topics import CAPTURED

SOURCE_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,23}")
"""Short, because a slot's name has at most 63 characters, of which the environment may take 31."""
TABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\.[A-Za-z_][A-Za-z0-9_]*")
COLUMN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")
RESERVED_FIELDS: Final = frozenset({"table", "key", "columns", "source_name", "topic"})
"""Attributes of Captured; columns with these names need an alias."""
EngineName = Literal["postgresql", "mariadb", "mysql"]
TOPICS: Final = CAPTURED.removesuffix(".")
"""The topics of captured tables begin with this, behind the environment: `cdc.shop.public.customers`."""


class Captured(BaseModel):
    """A table of a database that is captured: `class Customer(Captured, table="public.customers", key="id")`.

    Its fields are the columns that are wanted, each with its type. A column that is not declared never leaves the
    database's network. A field's name is its column's, unless it has an alias. key: the column or columns that identify
    a row; usually the primary key.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_bytes="base64", val_json_bytes="base64")

    table: ClassVar[str] = ""
    """Schema and name: `public.customers`. In MariaDB and MySQL, a schema is a database: `crm.customers`."""
    key: ClassVar[tuple[str, ...]] = ()
    columns: ClassVar[Mapping[str, Column]] = MappingProxyType({})
    """By name, in the order of declaration."""
    source_name: ClassVar[str] = ""
    """Of the Source that the table belongs to; the Source sets it."""

    def __init_subclass__(cls, *, table: str = "", key: str | Sequence[str] = (), **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not table:
            raise SourceDeclarationError(
                f'captured class "{cls.__name__}" names no table: write '
                f'class {cls.__name__}(Captured, table="public.customers", key="id")'
            )
        if not TABLE_NAME.fullmatch(table):
            raise SourceDeclarationError(
                f'"{table}" is not a table that can be captured: write schema and name, such as "public.customers"; '
                "Kafka's topics take only A-Z, a-z, 0-9 and _ of them"
            )
        for name in RESERVED_FIELDS.intersection(vars(cls).get("__annotations__", {})):
            raise SourceDeclarationError(
                f'column "{name}" of table "{table}" has the name of an attribute of Captured: declare it as '
                f'{name}_: Annotated[…, Field(alias="{name}")]'
            )
        cls.table, cls.key = table, (key,) if isinstance(key, str) else tuple(key)
        cls.source_name = ""

    @classmethod
    def __pydantic_init_subclass__(cls, *, table: str = "", key: str | Sequence[str] = (), **kwargs: Any) -> None:
        # pydantic knows the fields only at this point
        columns = [column_of(f'table "{cls.table}"', name, info) for name, info in cls.model_fields.items()]
        for column in columns:
            if not COLUMN_NAME.fullmatch(column.name):
                raise SourceDeclarationError(
                    f'column "{column.name}" of table "{cls.table}" cannot be captured: use A-Z, a-z, 0-9, _ and $'
                )
        cls.columns = MappingProxyType({column.name: column for column in columns})
        cls._check_key()
        fields = [
            info
            for name, info in cls.model_fields.items()
            if cls.columns[info.alias or name].kind is Kind.INTERVAL and SIGNED_PARTS not in info.metadata
        ]
        for info in fields:
            info.metadata.append(SIGNED_PARTS)
        if fields:
            cls.model_rebuild(force=True)

    @classmethod
    def _check_key(cls) -> None:
        if not cls.key:
            raise SourceDeclarationError(
                f'table "{cls.table}" has no key: write key="id" with its primary key, or what else identifies a row'
            )
        if len(set(cls.key)) < len(cls.key):
            raise SourceDeclarationError(f'the key of table "{cls.table}" names a column twice: name it once')
        for name in cls.key:
            column = cls.columns.get(name)
            if column is None:
                raise SourceDeclarationError(
                    f'the key of table "{cls.table}" has the column "{name}", which is not declared: declare it too'
                )
            if column.nullable or column.mask or column.kind not in KEY_KINDS:
                raise SourceDeclarationError(
                    f'column "{name}" is in the key of table "{cls.table}": declare it without | None and a mask, '
                    "as int, str, bool, UUID, Decimal, date, time, datetime or an Enum"
                )

    @classmethod
    def topic(cls) -> str:
        """The table's topic without the environment: `cdc.shop.public.customers`; raises SourceDeclarationError."""
        if not cls.source_name:
            raise SourceDeclarationError(
                f'table "{cls.table}" belongs to no source: add {cls.__name__} to the tables of a Source'
            )
        return f"{TOPICS}.{cls.source_name}.{cls.table}"


@dataclass(frozen=True, slots=True)
class Source:
    """A database whose tables are captured. Register it by assigning it in a module of HEADWATER_MODULES.

    name: in topics, the connector, the replication slot and the publication.
    tables: classes derived from Captured.
    database: the environment variable with the connection, such as `postgresql://headwater@db/shop`; default:
    `HEADWATER_<NAME>_DATABASE`.
    heartbeat_ms: how often the connector reports its position if nothing changes; it then lets the database remove its
    write-ahead log.
    outbox: whether messages in the write-ahead log with the prefix `headwater.command` are commands that are sent; only
    in PostgreSQL.
    engine: what the database is.
    """

    name: str
    tables: tuple[type[Captured], ...]
    database: str = ""
    heartbeat_ms: int = 1_000
    outbox: bool = False
    engine: EngineName = "postgresql"

    def __post_init__(self) -> None:
        if not SOURCE_NAME.fullmatch(self.name):
            raise SourceDeclarationError(
                f'"{self.name}" is not the name of a source: use a-z, 0-9 and _, at most 24 characters, a letter first'
            )
        if not self.database:
            object.__setattr__(self, "database", f"{self.prefix}_DATABASE")
        if not re.fullmatch(r"[A-Z][A-Z0-9_]*", self.database):
            raise SourceDeclarationError(
                f'the database of source "{self.name}" is "{self.database}": write the name of an environment variable '
                "that has the connection, so that no password is in the code"
            )
        if self.heartbeat_ms < 100:
            raise SourceDeclarationError(f'source "{self.name}" has heartbeat_ms {self.heartbeat_ms}: use 100 or more')
        object.__setattr__(self, "tables", tuple(self.tables))
        known = get_args(EngineName)
        if self.engine not in known:
            raise SourceDeclarationError(
                f'source "{self.name}" has the engine "{self.engine}": write one of {", ".join(known)}'
            )
        if self.outbox and self.engine != "postgresql":
            raise SourceDeclarationError(
                f'source "{self.name}" has outbox=True, but its engine is {self.engine}, whose log has no messages: '
                "leave it out, and let a process turn the rows of an outbox table into commands"
            )
        self._check_tables()

    def _check_tables(self) -> None:
        if not self.tables:
            raise SourceDeclarationError(f'source "{self.name}" has no tables: list its classes in tables=(…,)')
        for table in self.tables:
            if not (isinstance(table, type) and issubclass(table, Captured) and table.table):
                raise SourceDeclarationError(
                    f'{table!r} in the tables of source "{self.name}" is not a captured table: '
                    'write class Customer(Captured, table="public.customers", key="id")'
                )
        seen: dict[str, type[Captured]] = {}
        for table in self.tables:
            # Debezium compares names of tables without their case
            if (other := seen.setdefault(table.table.lower(), table)) is not table or self.tables.count(table) > 1:
                raise SourceDeclarationError(
                    f'"{other.__name__}" and "{table.__name__}" of source "{self.name}" capture the same table '
                    f'"{table.table}": declare it once'
                )
        for table in self.tables:
            if table.source_name not in ("", self.name):
                raise SourceDeclarationError(
                    f'"{table.__name__}" belongs to source "{table.source_name}" already: declare a class of its own '
                    f'for source "{self.name}"'
                )
        for table in self.tables:
            table.source_name = self.name

    @property
    def prefix(self) -> str:
        """How its environment variables begin: `HEADWATER_SHOP`."""
        return f"HEADWATER_{self.name.upper()}"

    @property
    def salt(self) -> str:
        """The environment variable with the salt of hashed columns."""
        return f"{self.prefix}_SALT"

    @property
    def hashes(self) -> bool:
        """Whether a column is hashed, which needs a salt."""
        return any(isinstance(column.mask, Hashed) for _, column in self.columns())

    @property
    def databases(self) -> list[str]:
        """The schemas of its tables, which are databases in MariaDB and MySQL."""
        return sorted({table.table.partition(".")[0] for table in self.tables})

    def columns(self) -> Iterator[tuple[type[Captured], Column]]:
        """Every captured column, with its table."""
        for table in self.tables:
            for column in table.columns.values():
                yield table, column

    def table(self, name: str) -> type[Captured]:
        """The class of the table `public.customers`; raises SourceDeclarationError with the tables that there are."""
        for table in self.tables:
            if table.table == name:
                return table
        known = ", ".join(table.table for table in self.tables)
        raise SourceDeclarationError(f'source "{self.name}" has no table "{name}": it captures {known}')


def column_pattern(table: type[Captured], column: Column) -> str:
    """The regular expression that only the full name of a column matches: `public\\.customers\\.id`."""
    return re.escape(f"{table.table}.{column.name}")


class SourceRegistry:
    """The sources of a deployment. sources: by name."""

    def __init__(self, found: Iterable[tuple[str, Source]]) -> None:
        """Take (module, source) pairs; raises SourceDeclarationError naming both modules if two have the same name."""
        sources = by_name(found, attrgetter("name"), "the source", SourceDeclarationError)
        self.sources: Mapping[str, Source] = MappingProxyType(sources)

    @classmethod
    def load(cls, modules: Sequence[str]) -> SourceRegistry:
        """The sources of a deployment that loads `modules` (see `LogSettings.modules`)."""
        return cls(find(modules, Source))

    def source(self, name: str) -> Source:
        """The source with this name; raises UnknownSource."""
        try:
            return self.sources[name]
        except KeyError:
            raise UnknownSource(name, tuple(self.sources)) from None
