"""What every store that a view can declare has; `projections.stores.declared` has the stores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar, Final, Self

from headwater.eventlog.declaring import meant, must_be_texts
from headwater.projections.table.types import ColumnType

POINTS: Final = (ColumnType.POINT,)
"""What has no order, and is never equal."""


class DeclaredStore(ABC):
    """A store as a view declares it: a frozen dataclass with what it keeps beside the rows, such as indexes.

    name: of its folder in `projections.stores`, also in settings, the registry and commands.
    answers: whether the API reads views from it. finds: whether it finds rows by any column, and not only by key.
    searches: whether it searches texts. keeps_partitions: whether all versions of a view must have a row in the same
    partition of `patches`.
    clear: the columns with personal values that it has in plaintext; the others are sealed.
    """

    name: ClassVar[str]
    answers: ClassVar[bool] = True
    keeps_partitions: ClassVar[bool] = False
    finds: ClassVar[bool] = True
    searches: ClassVar[bool] = False
    clear: tuple[str, ...] = ()

    @property
    @abstractmethod
    def declaration(self) -> str:
        """Its text in a fingerprint."""

    @classmethod
    def of_rows(cls, declaration: str) -> str:
        """The part of such a text that says what a generation has, and so needs a new version if it changes.

        The rest is about answers, or about what is kept beside the rows and added while a live generation is read and
        written (`Backend.add_missing`).
        """
        return declaration

    @abstractmethod
    def check(self, types: Mapping[str, ColumnType]) -> None:
        """Raise ValueError, which says what to change, if it names columns that a view with these cannot have there.

        types: of the view's columns, the key first.
        """

    def narrowed(self, columns: Collection[str], key: str) -> Self:
        """The same store for a view that has only these of the columns. key: the key among them."""
        return self


def check_named(what: str, names: object, example: str, types: Mapping[str, ColumnType]) -> None:
    """Raise ValueError if a store names columns that are not those of a view, or lists."""
    must_be_texts(what, names, example)
    assert isinstance(names, tuple | list)  # noqa: S101 - for mypy
    for name in names:
        if name not in types:
            raise ValueError(f"{what} names the unknown column {meant(name, types)}")
        if types[name] is ColumnType.LIST:
            raise ValueError(f'{what} cannot index "{name}": it is a list')


def refuse_points(what: str, names: Sequence[str], types: Mapping[str, ColumnType], why: str) -> None:
    """Raise ValueError if a store names columns of points; `why` it cannot have them."""
    for name in names:
        if types[name] in POINTS:
            raise ValueError(f'{what} names "{name}", which is {types[name].name} and {why}: remove it')
