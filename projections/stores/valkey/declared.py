"""`Cache` and its rankings, as a view declares them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from headwater.eventlog.declaring import word
from headwater.projections.stores.valkey.ranking import Ranking, check_rankings
from headwater.projections.table.declared_store import DeclaredStore
from headwater.projections.table.types import ColumnType


@word('Cache(rankings=(Ranking("-price"),))')
@dataclass(frozen=True)
class Cache(DeclaredStore):
    """The view is a Valkey hash per key, for look-ups by key. `rankings`: orders in which it also finds rows."""

    rankings: tuple[Ranking, ...] = ()
    name = "valkey"
    finds = False

    @property
    def declaration(self) -> str:
        return f"Cache(rankings={[each.declaration for each in self.rankings]!r})" if self.rankings else "Cache()"

    def check(self, types: Mapping[str, ColumnType]) -> None:
        check_rankings(self.rankings, types)

    def narrowed(self, columns: Collection[str], key: str) -> Cache:
        dividing = set(columns) - {key}
        rankings = (each for each in self.rankings if each.column in columns and dividing.issuperset(each.within))
        return replace(self, rankings=tuple(rankings))
