"""A store has a folder of its own and a declaration: what is declared of it, and what processes use, fit together."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

import headwater.projections.stores
from headwater.projections.errors import ViewDeclarationError
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.backend import Backend
from headwater.projections.stores.declared import STORES
from headwater.projections.stores.open import backend, compared_of
from headwater.projections.table.declared_store import DeclaredStore
from headwater.projections.table.folds import last
from headwater.projections.table.types import ColumnType
from headwater.projections.table.view import TableView
from headwater.samples.listings.domain import Listed

FOLDERS = {path.parent.name for path in Path(headwater.projections.stores.__path__[0]).glob("*/store.py")}


def test_every_folder_of_a_store_is_registered_under_its_name() -> None:
    assert set(STORES) == FOLDERS
    assert {name: store.name for name, store in STORES.items()} == {name: name for name in FOLDERS}


@pytest.mark.parametrize("name", STORES)
def test_a_store_brings_all_that_processes_use(name: str) -> None:
    settings = StoreSettings()
    found = backend(name)
    assert isinstance(found, Backend)
    assert found.store(settings).name == name
    view = TableView("homes", "listing_id", {"city": last({Listed: "city"})}, (STORES["postgres"](),))
    assert list(compared_of(name, view, settings)) == [name]


def test_a_name_that_no_folder_has_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match='unknown store "duckdb": use one of postgres, elasticsearch, valkey, topic'):
        backend("duckdb")


@dataclass(frozen=True)
class Shelf(DeclaredStore):
    """A store that no module of Headwater knows."""

    label: str = ""
    name = "shelf"

    @property
    def declaration(self) -> str:
        return f"Shelf({self.label!r})"

    def check(self, types: Mapping[str, ColumnType]) -> None:
        if self.label not in types:
            raise ValueError(f'Shelf(label=…) names the unknown column "{self.label}"')


def test_a_view_asks_a_new_store_for_its_checks_and_its_text_in_the_fingerprint() -> None:
    columns = {"city": last({Listed: "city"})}
    view = TableView("homes", "listing_id", columns, (Shelf("city"),))
    assert view.store("shelf") == Shelf("city")
    assert "Shelf('city')" in view.declaration
    with pytest.raises(ViewDeclarationError, match='the unknown column "town"'):
        TableView("homes", "listing_id", columns, (Shelf("town"),))
