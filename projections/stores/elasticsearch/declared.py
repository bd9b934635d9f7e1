"""`Elasticsearch`, as a view declares it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from headwater.eventlog.declaring import word
from headwater.projections.table.declared_store import DeclaredStore, check_named, refuse_points
from headwater.projections.table.types import ColumnType

TEXTS: Final = (ColumnType.TEXT, ColumnType.JSON)
"""What full-text search can read."""


@word('Elasticsearch(text=("description",), facets=("city",))')
@dataclass(frozen=True)
class Elasticsearch(DeclaredStore):
    """The view is an index. `text`: columns for full-text search; `facets`: columns to count by; `clear`: columns with
    a personal value that the index has in clear, to find rows by them, also with `text`."""

    text: tuple[str, ...] = ()
    facets: tuple[str, ...] = ()
    clear: tuple[str, ...] = ()
    name = "elasticsearch"
    searches = True

    @property
    def declaration(self) -> str:
        clear = f"clear={self.clear!r}, " if self.clear else ""
        return f"Elasticsearch({clear}text={self.text!r}, facets={self.facets!r})"

    @classmethod
    def of_rows(cls, declaration: str) -> str:
        return declaration.partition(", facets=")[0]  # every column of an index can be counted by

    def check(self, types: Mapping[str, ColumnType]) -> None:
        check_named("Elasticsearch(text=…)", self.text, 'Elasticsearch(text=("description",))', types)
        check_named("Elasticsearch(facets=…)", self.facets, 'Elasticsearch(facets=("city",))', types)
        for name in self.text:
            if types[name] not in TEXTS:
                readable = ", ".join(each for each, kind in types.items() if kind in TEXTS)
                problem = f'names "{name}", which is {types[name].name} and no text'
                raise ValueError(f"Elasticsearch(text=…) {problem}: use {readable}")
        for name in self.facets:
            if name in self.clear:
                problem = f'names "{name}", which is personal: its values would be shown to every caller: remove it'
                raise ValueError(f"Elasticsearch(facets=…) {problem}")
        refuse_points("Elasticsearch(facets=…)", self.facets, types, "has no values to count")
        for name in self.facets:
            if types[name] is ColumnType.JSON:  # stored, and not indexed
                raise ValueError(f'Elasticsearch(facets=…) names "{name}", which is JSON and not indexed: remove it')

    def narrowed(self, columns: Collection[str], key: str) -> Elasticsearch:
        text, facets, clear = (
            tuple(each for each in names if each in columns) for names in (self.text, self.facets, self.clear)
        )
        return replace(self, text=text, facets=facets, clear=clear)
