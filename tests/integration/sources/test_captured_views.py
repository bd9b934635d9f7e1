"""The shop's tables in views, from SQL to every store: each row is what the database has, whatever is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import product

import pytest

from compose.shop.filling import fill
from compose.stack import Stack
from eventlog.capturing import Captured
from eventlog.settings import LogSettings
from eventlog.sources.shop.shop import shop
from projections.generations.registry import Generations
from projections.settings import StoreSettings
from projections.stores.open import STORES, open_reader
from projections.stores.store import Target
from projections.table.shown import DELETED
from tests.integration.sources.captured import Connector, captured, rows_of
from tests.integration.sources.clients import clients, more_of_each
from tests.integration.sources.mirrors import MIRRORS, in_rows, shown
from tests.integration.sources.watching import watching
from tests.seeds import seed_of
from tests.simulation.read_side import ReadSide
from tests.states import differences
from tests.waiting import eventually

MODULES = "shop,tests.integration.sources.mirrors"
FOUND_S = 420.0
"""The upkeep restarts a live query that hangs after a minute, and Spark starts slowly on a busy machine."""


@dataclass
class Mirrored:
    """A captured shop and the read side that mirrors it."""

    connector: Connector
    read_side: ReadSide
    variables: dict[str, str]

    @property
    def stores(self) -> StoreSettings:
        """Where the mirrors are."""
        return StoreSettings.from_environment(self.variables)

    def differences(self, table: type[Captured], store: str) -> list[str]:
        """How the mirror of a table in a store differs from the table."""
        view, log = MIRRORS[table], LogSettings.from_environment(self.variables)
        live = Generations(self.stores.postgres, log.environment).serving([view]).get(view.name)
        if live is None:
            return ["there is no live generation"]
        rows = open_reader(store, self.stores).rows(Target(view, live.generation))
        found = {key: shown(table, state) for key, state in rows if not state.get(DELETED)}
        with self.connector.connect() as connection:
            expected = {key: in_rows(table, row) for key, row in rows_of(connection, table).items()}
        return differences(found, expected)

    def is_equal(self, table: type[Captured], store: str) -> bool:
        """Whether the table's mirror in a store equals it now."""
        return not self.differences(table, store)

    def wait_equal(self) -> None:
        """Return once every mirror equals its table in every store."""
        for table, store in product(shop.tables, STORES):
            with suppress(AssertionError):  # the comparison below says more
                eventually(partial(self.is_equal, table, store), timeout_s=FOUND_S, every_s=0.5)
            assert self.differences(table, store) == [], f"{table.table} in {store}"

    def replay(self, *words: str) -> str:
        """Run `replay`; returns what it prints."""
        done = subprocess.run(
            [sys.executable, "-m", "replay", *words], env=self.variables, capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def mirrored(servers: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mirrored]:
    with captured(servers, shop, ["ALTER TABLE products REPLICA IDENTITY FULL"]) as connector:
        with connector.connect() as connection:
            fill(connection, seed_of(1))
        variables = os.environ | servers.endpoints.environment() | {
            "HEADWATER_ENVIRONMENT": connector.log.environment,
            "HEADWATER_PARTITIONS": str(connector.log.partitions),
            "HEADWATER_MODULES": MODULES,
            "HEADWATER_STATE": str(tmp_path_factory.mktemp("state")),
        }  # fmt: skip
        read_side = ReadSide(LogSettings.from_environment(variables), servers)
        read_side.start()
        watch = watching({**connector.variables, "HEADWATER_MODULES": "shop"}, tmp_path_factory.mktemp("watch") / "log")
        try:
            read_side.wait_until_up()
            with watch:
                yield Mirrored(connector, read_side, variables)
        finally:
            read_side.stop()


def test_every_row_of_every_table_is_in_every_store(mirrored: Mirrored) -> None:
    mirrored.connector.put()
    mirrored.wait_equal()


def test_kills_of_everything_between_sql_and_a_view_change_no_row(servers: Stack, mirrored: Mirrored) -> None:
    read_side = mirrored.read_side
    kills: list[Callable[[], object]] = [
        lambda: read_side.kill("projections", "live"),
        lambda: servers.kill("connect"),
        lambda: read_side.kill("load", "postgres"),
        lambda: servers.kill("postgres"),
        lambda: read_side.kill("load", "elasticsearch"),
        lambda: servers.kill("kafka"),
        lambda: read_side.kill("load", "valkey"),
    ]
    with clients(mirrored.connector) as running:
        for kill in kills:
            kill()
            more_of_each(running)
        servers.wait_healthy("postgres")
        servers.wait_healthy("kafka")
    mirrored.wait_equal()


def test_a_rebuild_while_rows_change_has_the_same_rows(mirrored: Mirrored) -> None:
    with clients(mirrored.connector):
        told = json.loads(mirrored.replay("rebuild", "--all", "--json").splitlines()[-1])
    assert told["events_per_s"] > 0
    mirrored.wait_equal()
