"""Opens a store, or a reader of it, by name, importing only its client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from importlib import import_module

from headwater.projections.settings import StoreSettings
from headwater.projections.stores.backend import Backend, Compared, RowReader
from headwater.projections.stores.declared import STORES
from headwater.projections.stores.store import ViewStore
from headwater.projections.view import View


def backend(name: str) -> Backend:
    """What the store with this name (see STORES) brings."""
    if name not in STORES:
        raise ValueError(f'unknown store "{name}": use one of {", ".join(STORES)}')
    # imported here, because a process needs the client of one store
    loaded: Backend = import_module(f"headwater.projections.stores.{name}.store").BACKEND
    return loaded


def open_store(name: str, settings: StoreSettings) -> ViewStore:
    """The store with this name (see STORES); connects at its first use."""
    return backend(name).store(settings)


@contextmanager
def opened(view: View, settings: StoreSettings) -> Iterator[list[ViewStore]]:
    """The stores of a view."""
    with opened_once(settings) as store:
        yield [store(declared.name) for declared in view.stores]


@contextmanager
def opened_once(settings: StoreSettings) -> Iterator[Callable[[str], ViewStore]]:
    """Gives the store with a name (see STORES), which is opened when it is first asked for."""
    with ExitStack() as closing_all:
        yield cache(lambda name: closing_all.enter_context(closing(open_store(name, settings))))


def open_reader(name: str, settings: StoreSettings) -> RowReader:
    """The reader of the store with this name (see STORES)."""
    return backend(name).reader(settings)


def compared_of(name: str, view: View, settings: StoreSettings) -> dict[str, Compared]:
    """What can be compared of a view in the store with this name: rows, and in Valkey the entries of rankings."""
    return {name: Compared(open_reader(name, settings)), **backend(name).beside_rows(view, settings)}
