"""`Postgres`, as a view declares it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from headwater.eventlog.declaring import must_be_texts, shown, word
from headwater.projections.table.declared_store import DeclaredStore, check_named, refuse_points
from headwater.projections.table.types import ColumnType

EXAMPLE = 'Postgres(indexes=(("city", "-price"),))'


@word('Postgres(indexes=(("city", "price"),))')
@dataclass(frozen=True)
class Postgres(DeclaredStore):
    """The view is a table of this name.

    indexes: columns of each secondary index, with "-" before a column by which queries sort in descending order:
    `("day", "-cents")` serves `?day=…&sort=-cents`.
    clear: columns with a personal value that the table has in clear, to read them by SQL and to find rows by them.
    """

    indexes: tuple[tuple[str, ...], ...] = ()
    clear: tuple[str, ...] = ()
    name = "postgres"

    @property
    def declaration(self) -> str:
        clear = f"clear={self.clear!r}, " if self.clear else ""
        return f"Postgres({clear}indexes={self.indexes!r})"

    @classmethod
    def of_rows(cls, declaration: str) -> str:
        return declaration.partition("indexes=")[0].rstrip("(, ")  # indexes are added while the table is in use

    def check(self, types: Mapping[str, ColumnType]) -> None:
        if not isinstance(self.indexes, tuple | list):
            raise ValueError(f"Postgres(indexes={shown(self.indexes)}) is no tuple of indexes: write {EXAMPLE}")
        for index in self.indexes:
            self._check_index(index, types)

    def _check_index(self, index: object, types: Mapping[str, ColumnType]) -> None:
        if isinstance(index, str):
            columns = ", ".join(f'("{each}",)' for each in self.indexes if isinstance(each, str))
            raise ValueError(
                f'Postgres(indexes=…) has the text "{index}" for an index, which is a tuple of columns: write '
                f"Postgres(indexes=({columns},))"
            )
        must_be_texts("an index in Postgres(indexes=…)", index, EXAMPLE)
        assert isinstance(index, tuple | list)  # noqa: S101 - for mypy
        names = _columns(index)
        if not names:
            raise ValueError(f"an index in Postgres(indexes=…) has no column: write {EXAMPLE}")
        check_named("Postgres(indexes=…)", names, EXAMPLE, types)
        refuse_points("Postgres(indexes=…)", names, types, "has no order")

    def narrowed(self, columns: Collection[str], key: str) -> Postgres:
        indexes = tuple(each for each in self.indexes if set(columns).issuperset(_columns(each)))
        return replace(self, indexes=indexes, clear=tuple(each for each in self.clear if each in columns))


@dataclass(frozen=True)
class PostgresWithPersons(Postgres):
    """The same, with rows that are found by the keys of a person, too.

    sealed: the column of JSON whose sealed texts say whose they are.
    """

    sealed: str = ""


def _columns(index: Collection[str]) -> list[str]:
    """The columns of an index, without their directions."""
    return [column.removeprefix("-") for column in index]
