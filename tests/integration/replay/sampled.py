"""The sample systems in a long run: the records of their traffic, and how stored rows differ from Python's."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple

from pyspark.sql import Row

from headwater.commands.declaring.observation import ObservationRegistry
from headwater.compose.samples.sales import facts
from headwater.compose.samples.sample import Deployment
from headwater.eventlog.envelope import decode, timestamp_ms
from headwater.eventlog.ports import Entry
from headwater.eventlog.topics import EVENTS, OBSERVATIONS
from headwater.projections.registry import ViewRegistry
from headwater.projections.stream.view import StreamView
from headwater.projections.table.declared_store import DeclaredStore
from tests.samples.checked import happened
from tests.samples.observed import SENT_WITHIN, Checked, Domain
from tests.samples.orders import LINES, CheckedOrders, large_order_lines
from tests.samples.sales import VIEWS as SALES_VIEWS
from tests.samples.saved_searches import FINAL_AFTER
from tests.samples.stored_rows import Rows, cached, differences, documents, followed, table
from tests.support.process_world import World
from tests.support.sample_entries import entry_of_fact, entry_of_report
from tests.unit.projections_spark.test_search_alerts import Happened, expected, in_log_order
from tests.unit.projections_spark.test_search_alerts import happened as search_traffic
from tests.unit.projections_spark.test_stream_domains import DOMAINS

LONGEST: Final = timedelta(minutes=20)
"""Of the traffic after the start; a run ends it earlier."""
LONGEST_WAIT: Final = timedelta(minutes=5)
"""Rows that are final later are not awaited."""
SEARCHED_BEFORE: Final = timedelta(seconds=30)
HISTORY: Final = {"checkouts": timedelta(minutes=10)}
"""If it is not that of the tests of queries: checkouts end after about 20 minutes."""
BETWEEN_ORDERS: Final = timedelta(milliseconds=600)


class Record(NamedTuple):
    """A record to append. item: what it says, for Python. due: when it is appended. entry: makes it then."""

    item: Any
    due: datetime
    entry: Callable[[], Entry]


class System(ABC):
    """A sample system. name: of its package."""

    name: str

    @abstractmethod
    def traffic(self, chance: random.Random, start: datetime) -> list[Record]:
        """Records around `start`, in the order in which they are due: those before it are its history."""

    @abstractmethod
    def expected(self, sent: Sequence[Any], view: str) -> tuple[str, Rows, dict[str, datetime]]:
        """The column with the key, and the rows of a view for these items; when a row is final, if it is sent once."""

    def others(self, deployment: Deployment, sent: Sequence[Any], now: datetime) -> Iterator[str]:
        """What else is wrong at `now`."""
        yield from ()

    @property
    def views(self) -> list[StreamView]:
        """Its stream views."""
        return list(ViewRegistry.load([self.name]).of_kind(StreamView))

    def due(self, sent: Sequence[Any], now: datetime) -> datetime:
        """When all rows must be there that are final soon."""
        final = [each for view in self.views for each in self.expected(sent, view.name)[2].values()]
        return max((each + SENT_WITHIN for each in final if each + SENT_WITHIN <= now + LONGEST_WAIT), default=now)

    def wrong(self, deployment: Deployment, sent: Sequence[Any], now: datetime) -> Iterator[str]:
        """Every difference between the rows in each store and those that Python expects."""
        for view in self.views:
            key, rows, final = self.expected(sent, view.name)
            for store in view.stores:
                stored = _stored(deployment, view.name, key, store)
                must = {each: row for each, row in rows.items() if each in stored or _is_due(final, each, now)}
                yield from (
                    f"{store.name}: {difference}" for difference in differences(view.name, must, stored, "Python")
                )
        yield from self.others(deployment, sent, now)


def _expected(views: Sequence[Checked], sent: Sequence[Any], view: str) -> tuple[str, Rows, dict[str, datetime]]:
    (checked,) = (each for each in views if each.view == view)
    rows = checked.rows(sent)
    final = {} if checked.final is None else {key: checked.final(row) for key, row in rows.items()}
    return checked.key, rows, final


def _entry(row: Row, topic: str) -> Entry:
    return Entry(topic, row.key.decode(), row.value, timestamp_ms(row.timestamp))


def _is_due(final: dict[str, datetime], key: str, now: datetime) -> bool:
    return key not in final or final[key] + SENT_WITHIN <= now


def _stored(deployment: Deployment, view: str, key: str, store: DeclaredStore) -> Rows:
    if store.name == "valkey":
        return cached(deployment, view)
    read = {"postgres": table, "elasticsearch": documents, "topic": followed}[store.name]
    return read(deployment, view, key)


@dataclass(frozen=True)
class Observing(System):
    """A domain of observations. history: how long its traffic is before the start."""

    name: str
    domain: Domain
    history: timedelta

    def traffic(self, chance: random.Random, start: datetime) -> list[Record]:
        registry = ObservationRegistry.load([self.name])
        found = self.domain.traffic.reports(chance, start - self.history, self.history + LONGEST)
        return [Record(report, report.recorded, partial(entry_of_report, registry, report)) for report in found]

    def expected(self, sent: Sequence[Any], view: str) -> tuple[str, Rows, dict[str, datetime]]:
        return _expected(self.domain.checked, sent, view)

    def others(self, deployment: Deployment, sent: Sequence[Any], now: datetime) -> Iterator[str]:
        """Leaderboards, and what processes have made of rows."""
        for counted in self.domain.checked:
            if (board := counted.leaderboard) is not None:
                leaders = board.leaders(counted.rows(sent))
                yield from board.differences(leaders, board.stored(deployment, leaders), "Valkey")
        if (work := self.domain.followed) is not None:
            yield from work.wrong(sent, happened(deployment, work.aggregates), now)


class Sales(System):
    """Events of sales, tiers and tax rates."""

    name = "sales"
    history = timedelta(minutes=20)

    def traffic(self, chance: random.Random, start: datetime) -> list[Record]:
        found = facts(chance, start - self.history, self.history + LONGEST)
        return [Record(report, report.recorded, partial(entry_of_fact, report)) for report in found]

    def expected(self, sent: Sequence[Any], view: str) -> tuple[str, Rows, dict[str, datetime]]:
        return _expected(SALES_VIEWS, sent, view)


class SavedSearches(System):
    """Events of searches, and observations of homes."""

    name = "saved_searches"

    def traffic(self, chance: random.Random, start: datetime) -> list[Record]:
        def entry(change: Happened, record: Callable[[], Row]) -> Entry:
            return _entry(record(), OBSERVATIONS if change.change.kind == "offer" else EVENTS)

        found = in_log_order(search_traffic(chance.randrange(1_000), start - SEARCHED_BEFORE))
        return [Record(change, change.recorded, partial(entry, change, record)) for change, record in found]

    def expected(self, sent: Sequence[Any], view: str) -> tuple[str, Rows, dict[str, datetime]]:
        in_order: list[Happened] = sorted(sent, key=lambda each: each.time)
        offers = (record for record in in_order if record.change.kind == "offer")
        final = {f"home_offered/agent/{offer.change.data['id']}": offer.time + FINAL_AFTER for offer in offers}
        rows = expected(in_order)
        return "key", rows, {key: final[row["offer"]] for key, row in rows.items()}


class Ordering(System):
    """Events of orders, for the view in real-time mode."""

    name = "orders"

    def traffic(self, chance: random.Random, start: datetime) -> list[Record]:
        world, sample = World(chance), CheckedOrders()
        world.now = datetime.now(UTC)
        stock, placed, _ = sample.rounds()
        for request in (*stock, *placed):
            world.send(request.type, **request.body)
        world.settle()
        events = [each for partition in range(world.log.partitions) for each in world.log.read(EVENTS, partition, 0)]
        orders = [event for event in events if event.value and decode(event.value).type == "order.placed"]
        return [
            Record(
                (decode(order.value).stream.partition("/")[2], sample),
                start + number * BETWEEN_ORDERS,
                partial(Entry, EVENTS, order.key, order.value, order.timestamp_ms),
            )
            for number, order in enumerate(orders)
        ]

    def expected(self, sent: Sequence[Any], view: str) -> tuple[str, Rows, dict[str, datetime]]:
        assert view == LINES
        return "key", large_order_lines({name: sample.wishes[name] for name, sample in sent}), {}


SYSTEMS: Final[dict[str, System]] = {
    **{name: Observing(name, domain, HISTORY.get(name, length)) for name, (domain, length) in DOMAINS.items()},
    **{span.name: span for span in (Sales(), SavedSearches(), Ordering())},
}
