"""Opens a store, or a reader of it, by name, importing only its client. Only this module knows all stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cache

from projections.settings import StoreSettings
from projections.stores.row_reader import Compared, RowReader
from projections.stores.store import ViewStore
from projections.stores.valkey.rankings import ranked_of
from projections.view import View

STORES = ("postgres", "elasticsearch", "valkey", "topic")


def open_store(name: str, settings: StoreSettings) -> ViewStore:
    """The store with this name (see STORES); connects at its first use."""
    match name:
        case "postgres":
            from projections.stores.postgres.store import PostgresStore  # noqa: PLC0415 - one process needs one client

            return PostgresStore(settings)
        case "elasticsearch":
            from projections.stores.elasticsearch.store import ElasticsearchStore  # noqa: PLC0415

            return ElasticsearchStore(settings)
        case "valkey":
            from projections.stores.valkey.store import ValkeyStore  # noqa: PLC0415

            return ValkeyStore(settings)
        case "topic":
            from projections.stores.topic.store import TopicStore  # noqa: PLC0415

            return TopicStore(settings)
        case _:
            raise _unknown(name)


@contextmanager
def opened(view: View, settings: StoreSettings) -> Iterator[list[ViewStore]]:
    """The stores of a view."""
    with opened_once(settings) as store:
        yield [store(each.name) for each in view.stores]


@contextmanager
def opened_once(settings: StoreSettings) -> Iterator[Callable[[str], ViewStore]]:
    """Gives the store with a name (see STORES), which is opened when it is first asked for."""
    with ExitStack() as closing_all:
        yield cache(lambda name: closing_all.enter_context(closing(open_store(name, settings))))


def open_reader(name: str, settings: StoreSettings) -> RowReader:
    """The reader of the store with this name (see STORES)."""
    match name:
        case "postgres":
            from projections.stores.postgres.rows import PostgresRows  # noqa: PLC0415

            return PostgresRows(settings)
        case "elasticsearch":
            from projections.stores.elasticsearch.rows import ElasticsearchRows  # noqa: PLC0415

            return ElasticsearchRows(settings)
        case "valkey":
            from projections.stores.valkey.rows import ValkeyRows  # noqa: PLC0415

            return ValkeyRows(settings)
        case "topic":
            from projections.stores.topic.rows import TopicRows  # noqa: PLC0415

            return TopicRows(settings)
        case _:
            raise _unknown(name)


def compared_of(name: str, view: View, settings: StoreSettings) -> dict[str, Compared]:
    """What can be compared of a view in the store with this name: rows, and in Valkey the entries of rankings."""
    found = {name: Compared(open_reader(name, settings))}
    if name == "valkey" and ranked_of(view):
        from projections.stores.valkey.ranking_entries import ValkeyRankings, row_of  # noqa: PLC0415

        found["valkey rankings"] = Compared(ValkeyRankings(settings), row_of)
    return found


def _unknown(name: str) -> ValueError:
    return ValueError(f'unknown store "{name}": use one of {", ".join(STORES)}')
