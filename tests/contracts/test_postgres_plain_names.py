"""The SQL view under a view's alias: what users hang on it stays, from generation to generation."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg import sql

from headwater.compose.settings import StackSettings
from headwater.projections.errors import CannotPublish, StillUsed, StoreLocked
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.declared import Postgres
from headwater.projections.stores.postgres import client as postgres_connection
from headwater.projections.stores.store import Batch, Target
from headwater.projections.table.folds import add
from headwater.projections.table.patch import Patch, Place
from headwater.projections.table.view import TableView
from headwater.projections.testing.contracts import PARTITIONS
from tests.contracts.opened_stores import OnPostgres
from tests.contracts.view_histories import BY_THING, Put
from tests.support.waiting import BOUND_S

FIRST = BY_THING
KEPT = {name: column for name, column in FIRST.columns.items() if name != "text"}
OTHER = replace(FIRST, version=2, columns={"new": add({Put: "number"}), **KEPT}, stores=(Postgres(),))
"""Another version: `text` is gone, and another column came before the rest."""

NAMES = "SELECT thing_id FROM {view} ORDER BY 1"
TOTALS = "SELECT total FROM {view}"


class Users(OnPostgres):
    """A store, and people who read it with SQL: a role of their own, and a view in a schema of their own."""

    def __init__(self, settings: StoreSettings) -> None:
        super().__init__(settings)
        self.role = f"reader_{settings.environment}"
        self.schema = settings.environment
        self.run("CREATE ROLE {role}")
        self.run("GRANT {role} TO CURRENT_USER")

    def run(self, statement: str, *, role: str | None = None) -> list[Any]:
        """What a statement returns, run as `role`. {view}, {named}: the alias; {mine}: the users' own view."""
        names = {
            "role": sql.Identifier(self.role),
            "schema": sql.Identifier(self.schema),
            "view": sql.Identifier(self.schema, BY_THING.name),
            "named": sql.Literal(f"{self.schema}.{BY_THING.name}"),
            "mine": sql.Identifier(self.schema, "mine"),
        }
        with psycopg.connect(self.settings.postgres) as connection:
            if role is not None:
                connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
            cursor = connection.execute(sql.SQL(statement).format(**names))
            return [row[0] for row in cursor] if cursor.description else []

    def generation(self, view: TableView, number: int) -> Target:
        """A generation with one row, whose key says which it is."""
        target, store = Target(view, number), self.open()
        store.create(target, {}, dict.fromkeys(range(PARTITIONS), 0))
        store.finish(target)
        patch = Patch(f"row of {number}", "0", Place(1, 0), {"total": number, "new": number})
        store.apply([target], {0: Batch(1, {view.tag: [patch]})})
        return target

    def clean(self) -> None:
        super().clean()
        self.run("DROP OWNED BY {role}")
        self.run("DROP ROLE {role}")


@pytest.fixture
def users(stack: StackSettings) -> Iterator[Users]:
    at = stack.endpoints
    settings = StoreSettings(f"t_{uuid.uuid4().hex[:12]}", at.postgres, at.elasticsearch, at.valkey, PARTITIONS)
    with Users(settings) as opened:
        opened.open().publish(opened.generation(FIRST, 1))
        opened.run("GRANT USAGE ON SCHEMA {schema} TO {role}")
        yield opened


def test_with_equal_columns_grants_and_views_made_from_it_go_on(users: Users) -> None:
    users.run("GRANT SELECT ON {view} TO {role}")
    users.run("ALTER VIEW {view} SET (security_barrier = true)")
    users.run("CREATE VIEW {mine} AS SELECT total FROM {view}")
    users.open().publish(users.generation(FIRST, 2))
    assert users.run(NAMES, role=users.role) == ["row of 2"]
    assert users.run("SELECT total FROM {mine}") == [2]
    assert users.run("SELECT reloptions FROM pg_class WHERE oid = {named}::regclass") == [["security_barrier=true"]]
    # nothing needs the first generation any more
    users.open().drop(Target(FIRST, 1))
    assert users.run("SELECT total FROM {mine}") == [2]


def test_a_user_s_open_transaction_is_named_and_nobody_waits_behind_it(
    users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that waits for a lock lets all later readers wait, too."""
    monkeypatch.setattr(postgres_connection, "LOCK_S", 0.05)
    monkeypatch.setattr(postgres_connection, "PAUSE_S", 0.05)
    second, store = users.generation(FIRST, 2), users.open()
    with psycopg.connect(users.settings.postgres, application_name="a report") as reader:
        reader.execute(sql.SQL(NAMES).format(view=sql.Identifier(users.schema, FIRST.name)))
        monkeypatch.setattr(postgres_connection, "LOCKED_S", 0.2)
        for change in (store.publish, store.drop):
            with pytest.raises(
                StoreLocked, match=r"process \d+ of role \w+ \(a report, idle in transaction for \d+ s\)"
            ):
                change(second if change == store.publish else Target(FIRST, 1))
        monkeypatch.setattr(postgres_connection, "LOCKED_S", BOUND_S)
        with ThreadPoolExecutor(1) as thread:
            publishing = thread.submit(store.publish, second)
            for _ in range(20):
                assert users.run(NAMES) == ["row of 1"]
            reader.rollback()
            publishing.result(BOUND_S)
    assert users.run(NAMES) == ["row of 2"]


def test_a_server_that_does_not_answer_is_given_up(users: Users) -> None:
    with closing(postgres_connection.connect(users.settings.postgres, answer_s=0.1)) as connection:
        with pytest.raises(psycopg.OperationalError, match=r"it has not answered for 0\.1 s"):
            connection.execute("SELECT pg_sleep(60)")
        assert connection.closed


def test_with_other_columns_grants_and_the_owner_stay(users: Users) -> None:
    users.run("GRANT SELECT (thing_id, text) ON {view} TO {role}")
    users.run("GRANT UPDATE, SELECT ON {view} TO PUBLIC")
    users.open().publish(users.generation(OTHER, 2))
    assert users.run(NAMES, role=users.role) == ["row of 2"]
    assert users.run("SELECT new FROM {view}", role=users.role) == [2]
    users.run("REVOKE ALL ON {view} FROM PUBLIC")
    assert users.run(NAMES, role=users.role) == ["row of 2"], "the grant of one column is gone"
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        users.run(TOTALS, role=users.role)


def test_a_view_that_was_given_away_can_still_read_and_still_be_moved(users: Users) -> None:
    users.run("GRANT CREATE ON SCHEMA {schema} TO {role}")
    users.run("ALTER VIEW {view} OWNER TO {role}")
    for number, view in enumerate((FIRST, OTHER), 2):
        users.open().publish(users.generation(view, number))
        assert users.run(NAMES, role=users.role) == [f"row of {number}"]
    assert users.run("SELECT relowner::regrole::text FROM pg_class WHERE oid = {named}::regclass") == [users.role]


def test_privileges_that_new_views_are_given_are_not_given_again(users: Users) -> None:
    users.run("ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} GRANT SELECT ON TABLES TO {role}")
    users.open().publish(users.generation(OTHER, 2))
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        users.run(NAMES, role=users.role)


def test_with_other_columns_what_is_made_from_it_is_named_and_kept(users: Users) -> None:
    users.run("GRANT SELECT ON {view} TO {role}")
    users.run("CREATE VIEW {mine} AS SELECT total FROM {view}")
    second, store = users.generation(OTHER, 2), users.open()
    for _ in range(2):
        with pytest.raises(CannotPublish, match=rf"mine.* depends on .*by_thing.*replay publish {FIRST.name}"):
            store.publish(second)
    with pytest.raises(StillUsed, match="mine"):
        store.drop(Target(FIRST, 1))
    assert users.run("SELECT total FROM {mine}") == [1]
    assert users.run(NAMES, role=users.role) == ["row of 1"]
    assert store.ledgers(Target(FIRST, 1))
    users.run("DROP VIEW {mine}")
    store.publish(second)
    assert users.run(NAMES, role=users.role) == ["row of 2"]
    store.drop(Target(FIRST, 1))
    assert store.ledgers(Target(FIRST, 1)) == {}


def test_a_table_under_the_plain_name_is_left_alone(users: Users) -> None:
    users.run("DROP VIEW {view}")
    users.run("CREATE TABLE {view} (mine integer)")
    with pytest.raises(CannotPublish, match="is not a view"):
        users.open().publish(users.generation(FIRST, 2))
    users.open().drop(Target(FIRST, 2))
    assert users.run("SELECT mine FROM {view}") == []


def test_the_live_generation_takes_the_plain_name_along(users: Users) -> None:
    users.open().drop(Target(FIRST, 1))
    with pytest.raises(psycopg.errors.UndefinedTable):
        users.run(NAMES)
