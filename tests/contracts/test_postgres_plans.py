"""How PostgreSQL reads the rows of patches: by key, however the table has grown since its statements were planned."""

from __future__ import annotations

import uuid
from contextlib import closing

import psycopg
from psycopg import sql

from headwater.compose.settings import StackSettings
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.names import table_name
from headwater.projections.stores.open import open_reader
from headwater.projections.stores.postgres.store import PostgresStore
from headwater.projections.stores.store import Batch, Target
from headwater.projections.table.patch import Patch, Place
from tests.contracts.opened_stores import OnPostgres
from tests.contracts.view_histories import BY_THING
from tests.support.waiting import eventually

BATCHES, ROWS = 12, 100
"""psycopg prepares a statement at its fifth execution, and PostgreSQL keeps a plan from the sixth of these on."""
READS = "SELECT seq_scan, idx_scan FROM pg_stat_user_tables WHERE relid = %s::regclass"


def test_a_table_that_grows_from_nothing_is_read_by_key(stack: StackSettings) -> None:
    at = stack.endpoints
    settings = StoreSettings(f"t_{uuid.uuid4().hex[:12]}", at.postgres, at.elasticsearch, at.valkey, 1)
    target, server = Target(BY_THING, 1), OnPostgres(settings)
    table = sql.Identifier(settings.environment, table_name(BY_THING.name, 1)).as_string()

    def reads() -> tuple[int, int]:
        with psycopg.connect(settings.postgres) as connection:
            found = connection.execute(READS, [table]).fetchone()
        assert found is not None
        return found[0], found[1]

    try:
        with closing(PostgresStore(settings)) as store:
            store.create(target, {}, {0: 0})
            store.finish(target)
        with closing(PostgresStore(settings)) as store:
            for number in range(BATCHES):
                first = number * ROWS
                patches = [
                    Patch(f"thing {number}", "0", Place(number, 0), {"total": 1})
                    for number in range(first, first + ROWS)
                ]
                store.apply([target], {0: Batch(first + ROWS, {BY_THING.tag: patches}, first_offset=first)})
        # the server counts them a second later at most, and those of a connection at its end
        eventually(lambda: reads()[1] >= BATCHES, "the server has counted the reads by key")
        scans, _ = reads()
        assert scans <= 2, "to build the primary key, and to see whether the table is empty"
        assert open_reader("postgres", settings).size(target).rows == BATCHES * ROWS, "nobody has analyzed the table"
    finally:
        server.clean()
