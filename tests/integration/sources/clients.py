"""Clients that change the shop all the time, while servers are killed."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from headwater.compose.samples.shop_traffic import Traffic
from tests.integration.sources.captured import Connector
from tests.support.seeds import seed_of
from tests.support.waiting import eventually

PAUSE_S = 0.1
"""Between two transactions of a client: each costs Connect and Kafka a transaction of theirs."""


class Client(threading.Thread):
    """Makes random transactions until it is stopped; connects again whenever the database goes away."""

    def __init__(self, connector: Connector, number: int) -> None:
        super().__init__(name=f"client-{number}", daemon=True)
        self.made: Counter[str] = Counter()
        self._connector, self._number = connector, number
        self._stop_now = threading.Event()

    def run(self) -> None:
        while not self._stop_now.is_set():
            try:
                with self._connector.connect(connect_timeout=2) as connection:
                    traffic = Traffic(connection, seed_of(self._number + sum(self.made.values())))
                    traffic.made = self.made
                    while not self._stop_now.wait(PAUSE_S):
                        traffic.step()
            except (psycopg.OperationalError, psycopg.Rollback):  # the second one if it happened during a rollback
                self._stop_now.wait(0.1)

    def stop(self) -> None:
        self._stop_now.set()
        self.join(240)
        assert not self.is_alive()


@contextmanager
def clients(connector: Connector, number: int = 2) -> Iterator[list[Client]]:
    """This many clients, each of which has made a transaction at the beginning and one more at the end."""
    running = [Client(connector, each) for each in range(number)]
    for client in running:
        client.start()
    try:
        more_of_each(running)
        yield running
        more_of_each(running)
    finally:
        for client in running:
            client.stop()


def more_of_each(running: list[Client], transactions: int = 10) -> None:
    """Return once each client has made some more transactions."""
    before = [sum(client.made.values()) for client in running]

    def have_gone_on() -> bool:
        assert all(each.is_alive() for each in running), "a client has ended"
        return all(sum(each.made.values()) >= was + transactions for each, was in zip(running, before, strict=True))

    eventually(have_gone_on, "the clients go on")
