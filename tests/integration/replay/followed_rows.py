"""The rows of `followed`, of its topic and of the views over its rows, in a deployment under test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

from headwater.eventlog.envelope import decode
from headwater.eventlog.heartbeats import is_heartbeat_key
from headwater.projections.reading.reader import fold
from headwater.projections.stores.topic.records import public_topic
from headwater.projections.table.expressions import Source
from headwater.projections.table.view import TableView
from headwater.projections.testing.rows import with_rows
from tests.integration.replay.deployed import Deployed
from tests.integration.replay.followed import OVER_VIEWS, followed

Rows = dict[str, dict[str, Any]]


def append(deployed: Deployed, events: Iterator[Source], number: int) -> None:
    deployed.append(list(islice(events, number)))


def told(deployed: Deployed, view: TableView) -> dict[str, list[dict[str, Any] | None]]:
    """All that a program sees that reads the public topic from its beginning: the rows of each key, in their order
    (None: it was deleted)."""
    found: dict[str, list[dict[str, Any] | None]] = {}
    for partition in range(deployed.settings.patch_partitions):
        here: dict[str, list[dict[str, Any] | None]] = {}
        for record in deployed.log.read(public_topic(view.name), partition, 0):
            if is_heartbeat_key(record.key, record.topic):
                continue
            row = None if record.value is None else dict(decode(record.value).data)
            here.setdefault(record.key, []).append(row)
        assert not found.keys() & here.keys(), "a row is in one partition, whatever version wrote it"
        found |= here
    return found


def rows_in_topic(deployed: Deployed, view: TableView) -> Rows:
    last = {key: rows[-1] for key, rows in told(deployed, view).items()}
    return {key: row for key, row in last.items() if row is not None}


def rows_become_the_references(deployed: Deployed, *views: TableView) -> None:
    deployed.beat()
    for view in views:
        expected = fold(view, deployed.sources)
        assert expected
        deployed.become(partial(rows_in, deployed, "postgres", view), expected, f"{view.name} in PostgreSQL")
        deployed.become(partial(rows_in_topic, deployed, view), expected, f"{view.name} in its topic")


def rows_over_views_become_the_references(
    deployed: Deployed, read: TableView, over: Sequence[TableView] = OVER_VIEWS
) -> None:
    """Those of the views over rows of `read`, in every store. over: these views, each after those that it reads."""
    deployed.beat()
    views = {view.name: view for view in (read, *over)}
    for view in over:
        expected = fold(view, with_rows(view, views, deployed.sources))
        assert expected
        for store in (store.name for store in view.stores if store.answers):
            deployed.become(partial(rows_in, deployed, store, view), expected, f"{view.name} in {store}")


def rows_in(deployed: Deployed, store: str, view: TableView) -> Rows:
    return dict(deployed.servers[store].rows(view))


def delete_a_row(deployed: Deployed, events: Iterator[Source]) -> str:
    """Append events until one more row is deleted; returns its key."""
    shown = fold(followed, deployed.sources).keys()
    for _ in range(20):
        append(deployed, events, 10)
        if gone := shown - fold(followed, deployed.sources).keys():
            return gone.pop()
    raise AssertionError("no event deletes a row")
