"""What a check finds in a real PostgreSQL, and that the SQL which it prints solves it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, time
from decimal import Decimal
from typing import Annotated, Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pydantic import Field

from headwater.compose.ports import free_ports
from headwater.compose.settings import StackSettings
from headwater.compose.stack import Stack
from headwater.compose.state import own_folder
from headwater.eventlog.capturing import Captured, Source
from headwater.eventlog.capturing.database import StoredOffset
from headwater.eventlog.capturing.errors import SourceProblem
from headwater.eventlog.capturing.naming import SourceNames
from headwater.eventlog.capturing.postgres.database import PostgresAddress
from headwater.eventlog.capturing.postgres.engine import PostgresDatabase

pytestmark = pytest.mark.servers
CAPTURE = "capture"


@dataclass(frozen=True)
class Server:
    """A PostgreSQL with a role that captures, as the docs say."""

    url: str

    def sql(self, statements: str) -> list[tuple[Any, ...]]:
        """Run statements as a superuser, in one transaction unless they say otherwise."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            found = connection.execute(statements)
            return found.fetchall() if found.description else []

    def create(self, statements: str, *tables: str) -> None:
        """Create tables that CAPTURE may read."""
        self.sql(statements)
        for table in tables:
            self.sql(f"GRANT SELECT ON {table} TO {CAPTURE}")

    def open(self, table: type[Captured]) -> Any:
        """The database of a source with this table, as CAPTURE opens it."""
        return self.session(table, lambda: None)

    def session(self, table: type[Captured], offset: StoredOffset) -> Any:
        """The same, as the commands use it, with a connector that has stored this offset."""
        source = Source(name=table.table.partition(".")[2], tables=(table,))
        address = PostgresAddress.read("HEADWATER_DATABASE", make_conninfo(self.url, user=CAPTURE))
        return PostgresDatabase.open(source, SourceNames.of(source, "test"), address, offset)

    def problems(self, table: type[Captured]) -> list[str]:
        """What a check finds, without the publication, which CAPTURE may not create."""
        return [each for each in self._all(table) if "PUBLICATION" not in each]

    def publication_sql(self, table: type[Captured]) -> str:
        """The SQL that a check prints for the publication; empty if it prints none."""
        found = [each for each in self._all(table) if "PUBLICATION" in each]
        return found[0].partition(": run ")[2].removesuffix(", as a superuser") if found else ""

    def _all(self, table: type[Captured]) -> tuple[str, ...]:
        with self.open(table) as database:
            assert isinstance(database, PostgresDatabase)
            return database.check(registered=False).problems


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with own_folder() as folder, Stack(StackSettings(folder, free_ports()), ("postgres",)) as stack:
        made = Server(stack.endpoints.postgres)
        made.sql(f"CREATE ROLE {CAPTURE} LOGIN REPLICATION")
        made.sql("CREATE ROLE application LOGIN")
        yield made


class Secret(Captured, table="public.secrets", key="id"):
    id: int


def test_rows_that_a_policy_hides_are_refused_and_never_swept(server: Server) -> None:
    server.create("CREATE TABLE secrets (id int PRIMARY KEY); INSERT INTO secrets VALUES (1), (2)", "secrets")
    assert server.problems(Secret) == []
    with server.open(Secret) as database:
        assert database.absent(Secret, [["1"], ["3"]]) == [1]
        server.sql("ALTER TABLE secrets ENABLE ROW LEVEL SECURITY; CREATE POLICY few ON secrets USING (id = 1)")
        with pytest.raises(SourceProblem, match="row-level security"):
            database.absent(Secret, [["1"], ["2"]])
    (problem,) = server.problems(Secret)
    assert problem.startswith('row-level security hides rows of "public.secrets" from role capture')
    assert "run ALTER ROLE capture BYPASSRLS as a superuser" in problem
    server.sql("ALTER ROLE capture BYPASSRLS")
    assert server.problems(Secret) == []
    with server.open(Secret) as database:
        assert database.absent(Secret, [["1"], ["2"], ["3"]]) == [2]
    server.sql("ALTER ROLE capture NOBYPASSRLS")


class Closed(Captured, table="closed.things", key="id"):
    id: int


def test_a_schema_that_the_role_may_not_use_is_named_with_the_grant(server: Server) -> None:
    server.create("CREATE SCHEMA closed; CREATE TABLE closed.things (id int PRIMARY KEY)", "closed.things")
    (problem,) = server.problems(Closed)
    assert "run GRANT USAGE ON SCHEMA closed TO capture as headwater" in problem
    server.sql("GRANT USAGE ON SCHEMA closed TO capture")
    assert server.problems(Closed) == []


class Computed(Captured, table="public.computed", key="id"):
    id: int
    doubled: int | None
    halved: int | None


def test_generated_columns_are_refused(server: Server) -> None:
    server.create(
        "CREATE TABLE computed (id int PRIMARY KEY, doubled int GENERATED ALWAYS AS (id * 2) STORED, "
        "halved int GENERATED ALWAYS AS (id / 2) VIRTUAL, other int GENERATED ALWAYS AS (id * 3) STORED)",
        "computed",
    )
    stored, virtual = server.problems(Computed)
    assert stored == virtual.replace("halved", "doubled")
    assert stored == (
        'column "doubled" of table "public.computed" is a generated column, which is not captured: leave it out, or '
        "capture a column beside it that a trigger fills"
    )


class Logged(Captured, table="public.logged", key="id"):
    id: int


def test_updates_of_a_table_with_generated_columns_are_not_refused(server: Server) -> None:
    """PostgreSQL 18 refuses them if the whole old row is logged and the publication leaves these columns out."""
    server.create(
        "CREATE TABLE logged (id int PRIMARY KEY, more int GENERATED ALWAYS AS (id * 2) STORED); "
        "ALTER TABLE logged REPLICA IDENTITY FULL; INSERT INTO logged VALUES (1)",
        "logged",
    )
    publish = "WITH (publish = 'insert, update, delete', publish_via_partition_root)"
    server.sql(f"CREATE PUBLICATION test_cdc_logged FOR TABLE logged {publish}")
    with pytest.raises(psycopg.errors.InvalidColumnReference):
        server.sql("UPDATE logged SET id = 2")
    server.sql(server.publication_sql(Logged))
    server.sql("UPDATE logged SET id = 2")
    assert server.publication_sql(Logged) == ""
    server.sql("ALTER TABLE logged ADD half int GENERATED ALWAYS AS (id / 2) VIRTUAL")
    with pytest.raises(psycopg.errors.InvalidColumnReference):
        server.sql("UPDATE logged SET id = 3")
    (problem,) = server.problems(Logged)
    assert 'REPLICA IDENTITY FULL and the virtual generated column "half"' in problem
    server.sql("ALTER TABLE logged REPLICA IDENTITY DEFAULT; UPDATE logged SET id = 3")
    assert server.problems(Logged) == []


class Plain(Captured, table="public.plain", key="id"):
    id: int


def test_a_publication_without_generated_columns_stays_if_it_refuses_nothing(server: Server) -> None:
    server.create("CREATE TABLE plain (id int PRIMARY KEY, more int GENERATED ALWAYS AS (id * 2) STORED)", "plain")
    publish = "WITH (publish = 'insert, update, delete', publish_via_partition_root)"
    server.sql(f"CREATE PUBLICATION test_cdc_plain FOR TABLE plain {publish}")
    assert server.publication_sql(Plain) == ""


class Part(Captured, table="public.parts", key="name"):
    name: str


@pytest.mark.parametrize(
    "identity", ["FULL", "USING INDEX parts_key"], ids=["the whole old row", "an index of the table"]
)
def test_partitions_without_the_identity_of_their_table_are_named(server: Server, identity: str) -> None:
    server.create(
        "DROP TABLE IF EXISTS parts; "
        "CREATE TABLE parts (name text NOT NULL, CONSTRAINT parts_key UNIQUE (name)) PARTITION BY LIST (name); "
        "CREATE TABLE parts_a PARTITION OF parts FOR VALUES IN ('a'); "
        "CREATE TABLE parts_b PARTITION OF parts FOR VALUES IN ('b'); "
        "CREATE TABLE parts_c PARTITION OF parts FOR VALUES IN ('c'); "
        f"ALTER TABLE parts REPLICA IDENTITY {identity}; ALTER TABLE parts_c REPLICA IDENTITY FULL; "
        "INSERT INTO parts VALUES ('a'), ('b'), ('c')",
        "parts",
    )
    (problem,) = server.problems(Part)
    repair = problem.partition(": run ")[2]
    assert repair == (
        "ALTER TABLE public.parts_a REPLICA IDENTITY FULL; ALTER TABLE public.parts_b REPLICA IDENTITY FULL"
    )
    server.sql(server.publication_sql(Part))
    try:
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
            server.sql("DELETE FROM parts WHERE name = 'a'")
        server.sql(repair)
        server.sql("DELETE FROM parts")
        assert server.problems(Part) == []
    finally:
        server.sql("DROP PUBLICATION test_cdc_parts")


class Keyed(Captured, table="public.keyed", key="id"):
    id: int


def test_partitions_with_the_primary_key_need_nothing(server: Server) -> None:
    server.create(
        "CREATE TABLE keyed (id int PRIMARY KEY) PARTITION BY LIST (id); "
        "CREATE TABLE keyed_1 PARTITION OF keyed FOR VALUES IN (1); ALTER TABLE keyed REPLICA IDENTITY FULL",
        "keyed",
    )
    assert server.problems(Keyed) == []


class Told(Captured, table="public.told", key="id"):
    id: int


class Deferred(Captured, table="public.deferred", key="id"):
    id: int


def test_a_deferrable_primary_key_is_refused_before_it_breaks_the_application(server: Server) -> None:
    server.create("CREATE TABLE deferred (id int PRIMARY KEY DEFERRABLE); INSERT INTO deferred VALUES (1)", "deferred")
    problem, same = server.problems(Deferred)
    assert problem.startswith('the primary key of table "public.deferred" is deferrable')
    assert 'two rows of table "public.deferred" can have the same key (id)' in same
    server.sql("CREATE PUBLICATION test_deferred FOR TABLE deferred")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="replica identity"):
        server.sql("UPDATE deferred SET id = 2")
    server.sql("ALTER TABLE deferred DROP CONSTRAINT deferred_pkey, ADD PRIMARY KEY (id); UPDATE deferred SET id = 2")
    assert server.problems(Deferred) == []


class Swapped(Captured, table="public.swapped", key="id"):
    id: int


SWAP = "UPDATE swapped SET id = CASE id WHEN 1 THEN 2 ELSE 1 END"


@pytest.mark.parametrize("unique", ["", "PRIMARY KEY DEFERRABLE", "UNIQUE DEFERRABLE INITIALLY DEFERRED"])
def test_keys_that_rows_can_exchange_are_refused(server: Server, unique: str) -> None:
    """The log has a delete of each key after the insert of the other row that gets it."""
    server.sql("DROP TABLE IF EXISTS swapped")
    server.create(f"CREATE TABLE swapped (id int NOT NULL {unique}); INSERT INTO swapped VALUES (1), (2)", "swapped")
    server.sql("ALTER TABLE swapped REPLICA IDENTITY FULL")
    server.sql(SWAP)
    server.sql("CREATE UNIQUE INDEX ON swapped (id) WHERE id > 7")
    (problem,) = server.problems(Swapped)
    assert problem.startswith('two rows of table "public.swapped" can have the same key (id), if only within a trans')
    server.sql(problem.partition(": run ")[2].partition(";")[0])
    assert server.problems(Swapped) == []
    with pytest.raises(psycopg.errors.UniqueViolation):
        server.sql(SWAP)


def test_a_key_with_more_columns_than_a_unique_one_needs_no_index_of_its_own(server: Server) -> None:
    server.sql("DROP TABLE IF EXISTS including")
    server.create("CREATE TABLE including (id int PRIMARY KEY, note text NOT NULL)", "including")
    server.sql("ALTER TABLE including REPLICA IDENTITY FULL")
    assert server.problems(Including) == []
    server.sql("DROP TABLE including")


class DeferredParts(Captured, table="public.deferred_parts", key="id"):
    id: int


def test_a_partition_with_a_deferrable_primary_key_is_refused(server: Server) -> None:
    server.create(
        "CREATE TABLE deferred_parts (id int NOT NULL) PARTITION BY LIST (id); "
        "CREATE TABLE deferred_part (id int PRIMARY KEY DEFERRABLE); "
        "ALTER TABLE deferred_parts ATTACH PARTITION deferred_part FOR VALUES IN (1); "
        "ALTER TABLE deferred_parts REPLICA IDENTITY FULL",
        "deferred_parts",
    )
    problem, same = server.problems(DeferredParts)
    assert "run ALTER TABLE public.deferred_part REPLICA IDENTITY FULL" in problem
    server.sql("ALTER TABLE public.deferred_part REPLICA IDENTITY FULL")
    assert server.problems(DeferredParts) == [same]
    server.sql(same.partition(": run ")[2].partition(";")[0])
    assert server.problems(DeferredParts) == []


class Including(Captured, table="public.including", key=("id", "note")):
    id: int
    note: str


class IncludingId(Captured, table="public.including", key="id"):
    id: int
    note: str


def test_columns_that_an_index_includes_are_no_key(server: Server) -> None:
    server.create("CREATE TABLE including (id int, note text NOT NULL, PRIMARY KEY (id) INCLUDE (note))", "including")
    (problem,) = server.problems(Including)
    assert 'deletes in "public.including" have only (id)' in problem
    assert server.problems(IncludingId) == []
    server.sql(
        "ALTER TABLE including DROP CONSTRAINT including_pkey; "
        "CREATE UNIQUE INDEX one ON including (id) INCLUDE (note); "
        "ALTER TABLE including ALTER id SET NOT NULL, REPLICA IDENTITY USING INDEX one"
    )
    (problem,) = server.problems(Including)
    assert 'deletes in "public.including" have only (id)' in problem
    assert server.problems(IncludingId) == []


class Cased(Captured, table="public.cased", key="id"):
    id: int


def test_a_table_whose_name_differs_by_case_only_is_named(server: Server) -> None:
    server.create('CREATE TABLE cased (id int PRIMARY KEY); CREATE TABLE "Cased" (id int PRIMARY KEY)', "cased")
    (problem,) = server.problems(Cased)
    assert problem.startswith('table "public.Cased" differs from "public.cased" by the case of its name only')
    server.sql('DROP TABLE "Cased"')
    assert server.problems(Cased) == []


def test_a_column_whose_name_differs_by_case_only_is_named(server: Server) -> None:
    server.sql('ALTER TABLE cased ADD "ID" int')
    (problem,) = server.problems(Cased)
    assert problem.startswith('table "public.cased" has the columns "id" and "ID"')
    server.sql('ALTER TABLE cased DROP "ID"')
    assert server.problems(Cased) == []


@pytest.mark.parametrize(
    ("made", "name", "solved"),
    [
        ("CREATE TYPE nothing AS ENUM ()", "nothing", "ALTER TYPE nothing ADD VALUE 'a'"),
        ('CREATE TYPE "No thing" AS ENUM ()', '"No thing"', 'DROP TYPE "No thing"'),
        ("CREATE TYPE felt AS ENUM ('a'); CREATE DOMAIN feeling AS felt", "feeling", "DROP DOMAIN feeling"),
    ],
)
def test_types_at_which_debezium_stops_are_named_although_no_captured_table_has_them(
    server: Server, made: str, name: str, solved: str
) -> None:
    server.create("CREATE TABLE IF NOT EXISTS cased (id int PRIMARY KEY)", "cased")
    server.sql(made)
    (problem,) = server.problems(Cased)
    assert problem.startswith(f"type {name} is ")
    assert solved.removesuffix("'a'") in problem
    server.sql(solved)
    assert server.problems(Cased) == []


class Zoned(Captured, table="public.zoned", key="at"):
    at: time


def test_times_with_a_zone_are_no_key_because_different_ones_have_the_same_text(server: Server) -> None:
    server.create("CREATE TABLE zoned (at timetz PRIMARY KEY)", "zoned")
    server.sql("INSERT INTO zoned VALUES ('10:00+02'), ('08:00+00')")
    (problem,) = server.problems(Zoned)
    assert problem.startswith('column "at" of table "public.zoned" is time with time zone')


@pytest.mark.parametrize(
    "before", ["FOR ALL TABLES", "FOR TABLE other_told", "FOR TABLE told WITH (publish = 'insert')"]
)
def test_a_publication_of_another_owner_is_changed_in_one_transaction(server: Server, before: str) -> None:
    """A change between DROP and CREATE would be lost, or would stop the connector."""
    server.create("CREATE TABLE IF NOT EXISTS told (id int PRIMARY KEY)", "told")
    server.sql("CREATE TABLE IF NOT EXISTS other_told (id int PRIMARY KEY)")
    server.sql(f"CREATE PUBLICATION test_cdc_told {before}")
    try:
        printed = server.publication_sql(Told)
        assert printed.startswith("BEGIN; ")
        assert printed.endswith("; COMMIT")
        assert ("DROP" in printed) == (before == "FOR ALL TABLES")
        server.sql(printed)
        assert server.publication_sql(Told) == ""
    finally:
        server.sql("DROP PUBLICATION test_cdc_told")


def test_a_publication_of_one_s_own_is_altered_if_a_table_is_another_s(server: Server) -> None:
    server.create("CREATE TABLE IF NOT EXISTS told (id int PRIMARY KEY)", "told")
    server.sql(f"CREATE PUBLICATION test_cdc_told; ALTER PUBLICATION test_cdc_told OWNER TO {CAPTURE}")
    try:
        printed = server.publication_sql(Told)
        assert "ALTER PUBLICATION" in printed
        server.sql(printed)
        assert server.publication_sql(Told) == ""
    finally:
        server.sql("DROP PUBLICATION test_cdc_told")


def stored(offset: dict[str, Any] | None) -> StoredOffset:
    return lambda: offset


def test_a_connector_that_is_ahead_of_the_log_is_named(server: Server) -> None:
    ((end,),) = server.sql("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")
    offsets: list[dict[str, Any] | None] = [None, {}, {"transaction_id": None}, {"lsn": end, "snapshot": "INITIAL"}]
    for offset in offsets:
        with server.session(Secret, stored(offset)) as session:
            assert session.ahead() is None
    for name in ("lsn", "lsn_proc", "lsn_commit"):
        with server.session(Secret, stored({"lsn": 1, name: end + 2**30})) as session:
            assert "its log ends at 0/" in session.ahead()


def test_a_server_has_its_identifier(server: Server) -> None:
    ((identifier,),) = server.sql("SELECT system_identifier::text FROM pg_control_system()")
    with server.session(Secret, dict) as session:
        assert session.identity().identifier == identifier
        server.sql("REVOKE EXECUTE ON FUNCTION pg_control_system FROM public")
        try:
            assert session.identity() is None, "some providers do not let roles ask"
        finally:
            server.sql("GRANT EXECUTE ON FUNCTION pg_control_system TO public")


class Timed(Captured, table="public.timed", key=("id", "at")):
    id: int
    at: datetime


@pytest.mark.parametrize("kind", ["timestamptz", "timestamp(3)", "moment"])
def test_tables_with_times_in_their_keys_cannot_be_read_again(server: Server, kind: str) -> None:
    server.sql("DROP TABLE IF EXISTS timed; DROP DOMAIN IF EXISTS moment; CREATE DOMAIN moment AS timestamptz")
    server.create(f"CREATE TABLE timed (id int, at {kind}, PRIMARY KEY (id, at))", "timed")
    assert server.problems(Timed) == []
    with server.session(Timed, dict) as session:
        assert session.unchunked(Timed).startswith('its key column "at" is ')
        assert session.unchunked(Secret) is None


class Rounded(Captured, table="public.rounded", key="id"):
    id: int
    price: Decimal | None
    prices: list[Decimal] | None


@pytest.mark.parametrize("kind", ["numeric(5,-3)", "thousands"])
def test_numbers_with_a_negative_scale_are_named(server: Server, kind: str) -> None:
    server.sql("DROP TABLE IF EXISTS rounded; DROP DOMAIN IF EXISTS thousands")
    server.sql("CREATE DOMAIN thousands AS numeric(5,-3)")
    server.create(f"CREATE TABLE rounded (id int PRIMARY KEY, price {kind}, prices numeric(5,-3)[])", "rounded")
    server.sql("ALTER TABLE rounded REPLICA IDENTITY FULL")
    one, many = server.problems(Rounded)
    assert one.startswith('column "price" of table "public.rounded" is ')
    assert "negative scale" in one
    assert "negative scale" in many
    server.sql("ALTER TABLE rounded ALTER price TYPE numeric(8, 0), ALTER prices TYPE numeric(1000, 1000)[]")
    assert server.problems(Rounded) == []


class Money(Captured, table="public.money_of", key="id"):
    id: int
    price: Annotated[Decimal | None, Field(max_digits=12, decimal_places=2)]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("numeric(12,2)", None),
        ("smallint", None),
        ("numeric", None),
        ("numeric(12,3)", "is numeric(12,3): declare it with max_digits=13 and decimal_places=3"),
        ("bigint", "is bigint: declare it with max_digits=21 and decimal_places=2"),
    ],
)
def test_a_decimal_that_is_too_short_for_its_column_is_named(server: Server, kind: str, said: str | None) -> None:
    server.sql("DROP TABLE IF EXISTS money_of")
    server.create(f"CREATE TABLE money_of (id int PRIMARY KEY, price {kind})", "money_of")
    problems = server.problems(Money)
    assert problems == [] if said is None else said in problems[0]


class Parent(Captured, table="public.parent", key="id"):
    id: int


def test_tables_that_others_inherit_are_named(server: Server) -> None:
    server.create("CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE child () INHERITS (parent)", "parent")
    (problem,) = server.problems(Parent)
    assert problem.startswith('table "public.parent" is inherited by child, whose rows are read with it')
    server.sql(problem.partition(": run ")[2].partition(", or")[0])
    assert server.problems(Parent) == []


class Quick(Captured, table="public.quick", key="id"):
    id: int


def test_partitions_that_log_nothing_are_named(server: Server) -> None:
    server.create(
        "CREATE TABLE quick (id int PRIMARY KEY) PARTITION BY LIST (id); "
        "CREATE UNLOGGED TABLE quick_1 PARTITION OF quick FOR VALUES IN (1)",
        "quick",
    )
    (problem,) = server.problems(Quick)
    assert problem.startswith('"public.quick" has rows in public.quick_1, whose changes are not logged')
    server.sql("ALTER TABLE quick_1 SET LOGGED")
    assert server.problems(Quick) == []


class Filtered(Captured, table="public.filtered", key="id"):
    id: int
    note: str


@pytest.mark.parametrize(
    "spoil",
    ["SET TABLE filtered WHERE (id > 0)", "SET TABLE filtered (id)", "SET TABLE secrets", "SET (publish = 'insert')"],
)
def test_tables_of_which_the_publication_leaves_out_changes_are_named_and_published_again(
    server: Server, spoil: str
) -> None:
    create = "CREATE TABLE IF NOT EXISTS {} (id int PRIMARY KEY, note text NOT NULL DEFAULT '', more int)"
    server.create(create.format("filtered"), "filtered")
    server.sql(create.format("secrets"))
    with server.session(Filtered, dict) as session:
        assert not session.is_published(), "nothing is captured yet"
        server.sql(server.publication_sql(Filtered))
        try:
            server.sql("ALTER PUBLICATION test_cdc_filtered SET TABLE filtered (id, note)")
            assert session.is_published(), "other columns may be left out"
            assert server.publication_sql(Filtered) == ""
            server.sql(f"ALTER PUBLICATION test_cdc_filtered {spoil}")
            assert not session.is_published()
            layout = session.layouts()["public.filtered"]
            (found,) = session.missed(layout, layout)
            assert found.why == "is left out of its publication, or rows or columns of it are"
            server.sql(server.publication_sql(Filtered))
            layout = session.layouts()["public.filtered"]
            assert session.missed(layout, layout) == []
        finally:
            server.sql("DROP PUBLICATION test_cdc_filtered")
