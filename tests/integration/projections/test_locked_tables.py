"""What waits for a lock in PostgreSQL, or is never answered, ends there too: no server process is left behind."""

from __future__ import annotations

import psycopg
import pytest

from headwater.projections.errors import StoreUnavailable
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.names import table_name
from headwater.projections.stores.postgres.client import connect
from headwater.projections.stores.postgres.store import PostgresStore
from headwater.projections.stores.store import Batch, Target
from headwater.projections.table.patch import Patch, Place
from tests.contracts.view_histories import BY_THING
from tests.support.waiting import eventually

pytestmark = pytest.mark.complete
RUNNING = "SELECT query FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid() AND query LIKE %s"


def test_a_forgotten_lock_ends_the_batch_of_a_loader(stores: StoreSettings) -> None:
    target, store = Target(BY_THING, 1), PostgresStore(stores)
    store.create(target, {}, {0: 0})
    store.finish(target)
    batch = {0: Batch(1, {BY_THING.tag: [Patch("a", "0", Place(0, 0), {"total": 1})]})}
    with psycopg.connect(stores.postgres) as holder:
        holder.execute(f'LOCK TABLE "{stores.environment}"."{table_name(*target.id)}" IN ACCESS EXCLUSIVE MODE')
        with pytest.raises(StoreUnavailable, match="lock timeout"):
            store.apply([target], batch)
        assert not holder.execute(RUNNING, [f"%{table_name(*target.id)}%"]).fetchall()
    store.apply([target], batch)
    store.drop(target)
    store.close()


def test_a_statement_that_nobody_waits_for_any_more_is_cancelled(stores: StoreSettings) -> None:
    with (
        connect(stores.postgres, answer_s=0.5, autocommit=True) as connection,
        pytest.raises(psycopg.OperationalError, match=r"has not answered for 0\.5 s"),
    ):
        connection.execute("SELECT pg_sleep(600)")
    with psycopg.connect(stores.postgres, autocommit=True) as other:
        eventually(lambda: not other.execute(RUNNING, ["%pg_sleep(600)%"]).fetchall(), "it has ended")
