"""`headwater sources` against real servers: the life of a source, and every bad input that it names."""

from __future__ import annotations

import json
import textwrap
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from typer.testing import CliRunner, Result

from headwater.compose.parts import postgres
from headwater.compose.ports import free_port, free_ports
from headwater.compose.samples.shop_database import create_shop, fill
from headwater.compose.settings import StackSettings
from headwater.compose.stack import Stack
from headwater.compose.state import own_folder
from headwater.eventlog.capturing import Captured, cli
from headwater.eventlog.capturing.capture_progress import Commit, Progress
from headwater.eventlog.capturing.changes import Operation
from headwater.eventlog.capturing.cli import app
from headwater.eventlog.capturing.kafka_connect import ConnectorState, KafkaConnect
from headwater.eventlog.capturing.naming import SourceNames
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.settings import LogSettings
from headwater.samples.shop.source import Customer, Order, shop
from tests.integration.sources.captured import Topic
from tests.support.databases import drop_database
from tests.support.waiting import eventually


@dataclass
class Deployment:
    """A deployment with a database of its own, and its shell."""

    stack: Stack
    environment: str
    owner: str
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.variables = {
            "HEADWATER_ENVIRONMENT": self.environment,
            "HEADWATER_MODULES": "shop",
            "HEADWATER_KAFKA": self.stack.endpoints.kafka,
            "HEADWATER_CONNECT": self.stack.endpoints.connect,
            "HEADWATER_PARTITIONS": "2",
            "HEADWATER_SHOP_DATABASE": self.connection("shop_capture"),
            "HEADWATER_SHOP_SALT": "salt",
        }

    def connection(self, role: str, **parts: str) -> str:
        return make_conninfo(self.stack.endpoints.postgres, **{"user": role, "dbname": self.environment, **parts})

    def run(self, *words: str, **variables: str) -> Result:
        """Run a command; whatever happens, no exception leaves it."""
        result = CliRunner().invoke(app, words, env={**self.variables, **variables})
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert "Traceback" not in result.stderr
        return result

    def fails(self, *words: str, **variables: str) -> str:
        """Run a command that fails; returns what it says."""
        result = self.run(*words, **variables)
        assert result.exit_code == 1, result.output
        return result.stderr

    def works(self, *words: str, **variables: str) -> str:
        result = self.run(*words, **variables)
        assert result.exit_code == 0, result.output
        return result.stdout

    def status(self, **variables: str) -> dict[str, Any]:
        result = self.run("status", "--json", **variables)
        (source,) = json.loads(result.stdout)["sources"]
        assert result.exit_code == (0 if source["healthy"] else 3)
        return dict(source)

    def sql(self, statement: str, role: str = "shop") -> list[tuple[object, ...]]:
        with psycopg.connect(self.connection(role), autocommit=True) as connection:
            found = connection.execute(statement)
            return found.fetchall() if found.description else []

    @property
    def log(self) -> LogSettings:
        return LogSettings(environment=self.environment, bootstrap=self.stack.endpoints.kafka, partitions=2)

    def topic(self, table: type[Captured]) -> Topic:
        return Topic(self.log, table)

    def captured_to(self) -> Commit | None:
        with closing(KafkaLog(self.log)) as log:
            return Progress(log, shop).last_commit()


@contextmanager
def deployed(servers: Stack) -> Iterator[Deployment]:
    environment = f"t_{uuid.uuid4().hex[:12]}"
    made = Deployment(servers, environment, create_shop(servers.endpoints.postgres, environment))
    yield made
    made.run("remove", "shop", "--topics", "--yes")
    drop_database(servers.endpoints.postgres, environment)


@pytest.fixture
def deployment(capturing: Stack) -> Iterator[Deployment]:
    with deployed(capturing) as made:
        yield made


@pytest.fixture
def declare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Mapping[str, str]]]:
    """Writes a module with captured classes and a source `shop`; returns the variable that names it."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(classes: str) -> Mapping[str, str]:
        name = f"declared_{uuid.uuid4().hex[:12]}"
        names = [line.split()[1].partition("(")[0] for line in classes.splitlines() if "(Captured" in line]
        imports = (
            "from datetime import date, datetime\nfrom decimal import Decimal\nfrom typing import Annotated\n"
            "from headwater.eventlog.capturing import Captured, Hashed, Source, Truncated\n"
        )
        source = f'shop = Source(name="shop", tables=({", ".join(names)},))\n'
        (tmp_path / f"{name}.py").write_text(imports + textwrap.dedent(classes) + source)
        return {"HEADWATER_MODULES": name}

    yield write


CUSTOMERS = """
class Customer(Captured, table="public.customers", key="id"):
    id: int
    name: str
"""


def is_read(deployment: Deployment, kind: str = "initial") -> bool:
    """Whether the last snapshot is of this kind, and complete; a connector that has just begun has reported none."""
    snapshot = deployment.status()["snapshot"] or {}
    return (snapshot.get("kind"), snapshot.get("state")) == (kind, "COMPLETED")


def test_the_life_of_a_source(deployment: Deployment) -> None:
    with psycopg.connect(deployment.owner) as connection:
        fill(connection, 1, customers=20, products=5)
    planned = deployment.works("apply", "--dry-run")
    assert f"+ connector {deployment.environment}.cdc.shop" in planned
    assert "nothing was changed" in planned
    assert "salt" not in planned.replace("with.salt.…", "")
    assert deployment.status()["state"] == "ABSENT"
    assert deployment.captured_to() is None, "another database may be captured next"
    assert deployment.sql("SELECT * FROM pg_publication") == []

    assert "shop: applied" in deployment.works("apply")
    assert deployment.works("apply") == "shop: as declared\n"
    eventually(lambda: deployment.status()["healthy"] and deployment.status()["lag_s"] is not None, "it captures")
    status = deployment.status()
    assert status["state"] == "RUNNING"
    assert status["snapshot"] == {"kind": "initial", "state": "COMPLETED", "table": "", "rows": None} | (
        {name: status["snapshot"][name] for name in ("table", "rows")}
    )
    assert status["wal_status"] == "reserved"
    assert "shop: running; initial snapshot completed" in deployment.works("status")
    topic = deployment.topic(Customer)
    eventually(lambda: len(topic.read()) == 20, "all rows are there")

    assert deployment.works("pause") == "shop: paused\n"
    deployment.sql("UPDATE customers SET name = 'changed while paused' WHERE id = 3")
    assert deployment.status()["problems"] == ["its connector is paused: run headwater sources resume shop"]
    assert deployment.works("resume") == "shop: running\n"
    eventually(lambda: topic.read() and topic.rows["3"]["name"] == "changed while paused", "it goes on where it was")
    assert deployment.works("restart") == "shop: running\n"

    before = len(topic.records)
    deployment.works("snapshot", "public.customers", "--where", "id <= 4")
    eventually(lambda: len(topic.read()) == before + 4, "these rows are read again")
    assert {record.change.operation for record in topic.records[before:]} == {Operation.SNAPSHOT}
    eventually(lambda: is_read(deployment, "incremental"), "it reports its end")
    assert "no_column" in deployment.fails("snapshot", "public.customers", "--where", "no_column = 1")

    assert deployment.captured_to() is not None
    assert "without a terminal, use --yes" in deployment.fails("remove", "shop")
    assert deployment.works("remove", "shop", "--yes").splitlines()[-1] == "shop: removed"
    assert deployment.status()["state"] == "ABSENT"
    assert deployment.captured_to() is None, "another database may be captured next"
    assert deployment.sql("SELECT * FROM pg_publication") == []
    assert deployment.sql(f"SELECT * FROM pg_replication_slots WHERE database = '{deployment.environment}'") == []
    assert "it has no connector" in deployment.fails("resume")


@pytest.mark.complete
def test_a_snapshot_that_the_database_refuses_is_named_until_it_is_made_again(deployment: Deployment) -> None:
    with psycopg.connect(deployment.owner) as connection:
        fill(connection, 1, customers=20, products=5)
    deployment.works("apply")
    eventually(lambda: deployment.status()["healthy"], "it captures")
    deployment.run("snapshot", "public.customers", "--where", "1 / (id - id) = 1")
    eventually(lambda: deployment.status()["state"] == "FAILED", "Debezium fails if the database refuses a chunk")
    deployment.works("restart")
    eventually(lambda: len(deployment.status()["problems"]) == 1, "it captures heartbeats again")
    (problem,) = deployment.status()["problems"]
    assert 'rows of table "public.customers" were not read: its last snapshot failed (SQL_EXCEPTION)' in problem
    deployment.works(*problem.rpartition("headwater sources ")[2].split())
    eventually(lambda: deployment.status()["healthy"], "it is read")


@pytest.mark.complete
def test_tables_and_columns_that_are_declared_later_are_read_however_often_the_connector_is_restarted(
    deployment: Deployment, declare: Callable[[str], Mapping[str, str]]
) -> None:
    deployment.sql(
        "INSERT INTO customers (public_id, name, email) VALUES (gen_random_uuid(), 'Ann', 'ann@example.org')"
    )
    deployment.sql("INSERT INTO products (sku, name, category, description, price) VALUES ('P', 'Pot', 'tea', '', 1)")
    first = declare(CUSTOMERS)
    deployment.works("apply", **first)
    more = declare(
        CUSTOMERS
        + """
    email: str | None

class Product(Captured, table="public.products", key="sku"):
    sku: str
    name: str
"""
    )
    planned = deployment.works("apply", "--dry-run", **more)
    assert "~ publication" in planned
    assert r"public\.customers\.email" in planned
    deployment.works("apply", **more)

    class Products(Captured, table="public.products", key="sku"):
        sku: str
        name: str

    class Customers(Captured, table="public.customers", key="id"):
        id: int
        email: str | None

    Products.source_name = Customers.source_name = "shop"
    products, customers = deployment.topic(Products), deployment.topic(Customers)

    url = f"{deployment.stack.endpoints.connect}/connectors/{deployment.environment}.cdc.shop"
    for _ in range(3):
        eventually(lambda: httpx.post(f"{url}/restart?includeTasks=true", timeout=60).is_success, "it is restarted")
        deployment.topic(Products).read()
    eventually(lambda: products.read() and products.rows == {"P": {"sku": "P", "name": "Pot"}}, "the new table is read")
    eventually(
        lambda: customers.read() and customers.rows == {"1": {"id": 1, "email": "ann@example.org"}},
        "rows are read again with the new column",
    )


@pytest.mark.complete
def test_no_earlier_change_comes_behind_a_row_that_is_read_again(
    deployment: Deployment, declare: Callable[[str], Mapping[str, str]]
) -> None:
    """Debezium 3.6 sends what it has read at the first change that is older, so these must have come before."""
    declared = declare('class Product(Captured, table="public.products", key="sku"):\n    sku: str\n    name: str\n')
    deployment.sql(
        "INSERT INTO products (sku, name, category, description, price) "
        "SELECT 'P' || n, 'Pot', 'tea', '', 1 FROM generate_series(1, 50) n"
    )
    deployment.works("apply", **declared)
    eventually(lambda: deployment.status(**declared)["healthy"], "it captures")
    with closing(KafkaConnect(deployment.stack.endpoints.connect)) as connect:
        connect.stop(connector := SourceNames.of(shop, deployment.environment).connector)
        eventually(lambda: connect.state(connector) == ConnectorState("STOPPED", ""), "it does not run")
    with psycopg.connect(deployment.owner, autocommit=True) as connection:
        for _ in range(20):
            connection.execute("UPDATE products SET price = price + 1")
        connection.execute("ALTER TABLE products ALTER name TYPE text USING name || '!'")
    deployment.works("apply", **declared)

    class Products(Captured, table="public.products", key="sku"):
        sku: str
        name: str

    Products.source_name = "shop"
    topic = deployment.topic(Products)
    eventually(lambda: deployment.status(**declared)["healthy"], "it is read again")
    end = deployment.sql("SELECT pg_wal_lsn_diff(pg_logical_emit_message(true, 'headwater', ''), '0/0')::bigint")
    eventually(lambda: (commit := deployment.captured_to()) is not None and (commit.lsn,) >= end[0], "all is captured")
    topic.read()
    assert {row["name"] for row in topic.rows.values()} == {"Pot!"}


@pytest.mark.complete
def test_what_is_declared_while_the_connector_is_paused_is_read_when_it_runs_again(
    deployment: Deployment, declare: Callable[[str], Mapping[str, str]]
) -> None:
    deployment.sql("INSERT INTO products (sku, name, category, description, price) VALUES ('P', 'Pot', 'tea', '', 1)")
    deployment.works("apply", **declare(CUSTOMERS))
    deployment.works("pause")
    more = declare(
        CUSTOMERS
        + """
class Product(Captured, table="public.products", key="sku"):
    sku: str
    price: Decimal
"""
    )
    assert "run headwater sources resume shop" in deployment.fails("apply", **more)
    assert 'rows of table "public.products" were not read' in " ".join(deployment.status(**more)["problems"])
    deployment.works("resume", **more)

    class Products(Captured, table="public.products", key="sku"):
        sku: str
        price: Decimal

    Products.source_name = "shop"
    topic = deployment.topic(Products)
    eventually(lambda: topic.read() and topic.rows == {"P": {"sku": "P", "price": "1.00"}}, "it is read")
    assert deployment.works("apply", **more) == "shop: as declared\n"


BAD_TABLES = {
    "a table that is not there": (
        'class Nothing(Captured, table="public.nothing", key="id"):\n    id: int\n',
        'there is no table "public.nothing"',
    ),
    "a column that is not there": (
        CUSTOMERS + "    nick: str\n",
        'has no column "nick": remove it from Customer, or add it to the table, which has id, public_id,',
    ),
    "a column of another type": (
        CUSTOMERS + "    created_at: int\n",
        'column "created_at" of table "public.customers" is timestamp with time zone: declare it as datetime',
    ),
    "a column that may be NULL": (
        CUSTOMERS + "    phone: str\n",
        "may be NULL: add | None to its type, or run ALTER TABLE public.customers ALTER COLUMN phone SET NOT NULL",
    ),
    "a table without a primary key": (
        'class Loose(Captured, table="public.loose", key="id"):\n    id: int\n',
        "has no primary key, so PostgreSQL refuses updates once it is captured: run ALTER TABLE public.loose "
        "ADD PRIMARY KEY (id), or ALTER TABLE public.loose REPLICA IDENTITY FULL",
    ),
    "a key that deletes lack": (
        'class Product(Captured, table="public.products", key="name"):\n    name: str\n',
        'the key of Product is (name), but deletes in "public.products" have only (sku)',
    ),
    "a view": (
        'class Names(Captured, table="public.names", key="id"):\n    id: int\n',
        '"public.names" is not a table',
    ),
    "an array that Debezium does not know": (
        'class Loose(Captured, table="public.spans", key="id"):\n    id: int\n    spans: list[str]\n',
        "is interval[], of which Debezium has no form: leave it out",
    ),
    "a hash of what Debezium does not hash": (
        'class Customer(Captured, table="public.customers", key="id"):\n'
        "    id: int\n    public_id: Annotated[str, Hashed()]\n",
        'column "public_id" of table "public.customers" is uuid, which Debezium does not hash: leave it out',
    ),
    "a masked column that may be long": (
        'class Hidden(Captured, table="public.hidden", key="id"):\n'
        "    id: int\n    note: Annotated[str, Truncated(9)]\n",
        'table "public.hidden" would lose long values that an update leaves unchanged (column "note" is masked): run '
        "ALTER TABLE public.hidden REPLICA IDENTITY FULL",
    ),
    "an array that Debezium does not read again": (
        'class Hidden(Captured, table="public.hidden", key="id"):\n    id: int\n    ratios: list[float]\n',
        '(column "ratios" is double precision[]): run ALTER TABLE public.hidden REPLICA IDENTITY FULL',
    ),
    "a key by which Debezium cannot read again": (
        'class Named(Captured, table="public.named", key="order"):\n    order: int\n    note: str\n',
        '(key column "order" or its type is found in SQL only with quotes or its schema): run ALTER TABLE public.named '
        "REPLICA IDENTITY FULL",
    ),
    "a partition with a masked column that may be long": (
        'class Part(Captured, table="public.parts", key="id"):\n    id: int\n    note: Annotated[str, Hashed()]\n',
        "run ALTER TABLE public.parts_2 REPLICA IDENTITY FULL",
    ),
}


@pytest.fixture(scope="module")
def refusing(capturing: Stack) -> Iterator[Deployment]:
    """A deployment whose database has tables that cannot be captured; every test leaves it without a source."""
    with deployed(capturing) as made:
        made.sql(
            "CREATE TABLE loose (id int NOT NULL); CREATE VIEW names AS SELECT 1 AS id; "
            "CREATE TABLE spans (id int PRIMARY KEY, spans interval[] NOT NULL); "
            "CREATE TABLE hidden (id int PRIMARY KEY, note text NOT NULL, ratios float8[] NOT NULL); "
            'CREATE TABLE named ("order" int PRIMARY KEY, note text NOT NULL); '
            "CREATE TABLE parts (id int PRIMARY KEY, note text NOT NULL) PARTITION BY RANGE (id); "
            "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (9); "
            "CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (9) TO (99); "
            "ALTER TABLE parts_1 REPLICA IDENTITY FULL"
        )
        yield made


DECIDING = {"a column of another type", "a table without a primary key", "a masked column that may be long"}
"""One about a column, one about a key, one about what is hidden: unit tests have the rules."""


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        pytest.param(*table, id=name, marks=() if name in DECIDING else (pytest.mark.complete,))
        for name, table in BAD_TABLES.items()
    ],
)
def test_a_declaration_that_is_not_the_database_s_is_refused(
    refusing: Deployment, declare: Callable[[str], Mapping[str, str]], classes: str, said: str
) -> None:
    declared = declare(classes)
    assert said in refusing.fails("apply", **declared)
    assert said in " ".join(refusing.status(**declared)["problems"])
    assert refusing.sql("SELECT * FROM pg_publication") == [], "nothing was created"


@pytest.mark.complete
def test_a_masked_column_is_accepted_if_updates_have_its_long_values_or_it_has_none(
    deployment: Deployment, declare: Callable[[str], Mapping[str, str]]
) -> None:
    """A table without a column of unlimited length stores nothing apart."""
    deployment.sql(
        "CREATE TABLE hidden (id int PRIMARY KEY, note text NOT NULL); ALTER TABLE hidden REPLICA IDENTITY FULL; "
        "CREATE TABLE brief (id int PRIMARY KEY, note varchar(100) NOT NULL, ratios float8 NOT NULL)"
    )
    declared = "".join(
        f'class {name.title()}(Captured, table="public.{name}", key="id"):\n'
        "    id: int\n    note: Annotated[str, Truncated(9)]\n"
        for name in ("hidden", "brief")
    )
    deployment.works("apply", "--dry-run", **declare(declared))


@pytest.mark.complete
def test_a_table_without_a_primary_key_is_keyed_as_declared(
    deployment: Deployment, declare: Callable[[str], Mapping[str, str]]
) -> None:
    deployment.sql(
        "CREATE TABLE loose (a int NOT NULL, b text NOT NULL, UNIQUE (a, b)); ALTER TABLE loose REPLICA IDENTITY FULL"
    )
    declared = declare('class Loose(Captured, table="public.loose", key=("a", "b")):\n    a: int\n    b: str\n')
    deployment.works("apply", **declared)
    eventually(lambda: deployment.status(**declared)["healthy"], "it captures")
    deployment.sql("INSERT INTO loose VALUES (1, 'x'), (1, 'y')")
    deployment.sql("DELETE FROM loose WHERE b = 'x'")

    class Loose(Captured, table="public.loose", key=("a", "b")):
        a: int
        b: str

    Loose.source_name = "shop"
    topic = deployment.topic(Loose)
    eventually(lambda: len(topic.read()) == 4 and topic.rows.keys() == {'[1,"y"]'}, "rows have the declared key")


@pytest.mark.complete
def test_a_role_without_the_rights_is_told_the_sql(deployment: Deployment) -> None:
    server = deployment.stack.endpoints.postgres
    role = f"r_{deployment.environment}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN")
    try:
        said = deployment.fails("apply", HEADWATER_SHOP_DATABASE=deployment.connection(role))
        assert f"role {role} may not replicate: run ALTER ROLE {role} REPLICATION" in said
        assert f"run GRANT SELECT ON public.customers TO {role} as shop" in said
        assert f"role {role} does not own public.customers (shop)" in said
        statement = said.partition("run CREATE PUBLICATION")[2].partition(", as a superuser")[0]
        with psycopg.connect(make_conninfo(server, dbname=deployment.environment), autocommit=True) as connection:
            connection.execute(f"CREATE PUBLICATION{statement}")
            connection.execute(f"ALTER ROLE {role} REPLICATION")
            for table in ("customers", "products", "orders", "order_lines"):
                connection.execute(f"GRANT SELECT ON {table} TO {role}")
        address = deployment.connection(role)
        assert "shop: applied" in deployment.works("apply", HEADWATER_SHOP_DATABASE=address)
        removed = deployment.works("remove", "shop", "--yes", HEADWATER_SHOP_DATABASE=address)
        slot = f"{deployment.environment}_cdc_shop"
        assert f"publication {slot} is left: run DROP PUBLICATION {slot} as its owner" in removed
    finally:
        with psycopg.connect(make_conninfo(server, dbname=deployment.environment), autocommit=True) as connection:
            connection.execute(f"DROP OWNED BY {role}")
            connection.execute(f"DROP ROLE {role}")


@pytest.mark.complete
def test_a_wrong_password_is_never_shown(deployment: Deployment) -> None:
    server = deployment.stack.endpoints.postgres
    role = f"p_{deployment.environment}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'right'")
        ((hba,),) = connection.execute("SHOW hba_file").fetchall()
        rules = Path(hba).read_text()
        Path(hba).write_text(f"host all {role} 127.0.0.1/32 scram-sha-256\n{rules}")
        connection.execute("SELECT pg_reload_conf()")
    try:
        address = deployment.connection(role, password="wrong-secret")  # noqa: S106
        said = deployment.fails("apply", HEADWATER_SHOP_DATABASE=address)
        assert f"cannot connect to 127.0.0.1:{deployment.stack.settings.ports.postgres} as {role}" in said
        assert "password authentication failed" in said
        assert "set the role's password in HEADWATER_SHOP_DATABASE" in said
        assert "wrong-secret" not in said
        assert "wrong-secret" not in json.dumps(deployment.status(HEADWATER_SHOP_DATABASE=address))
    finally:
        Path(hba).write_text(rules)
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute("SELECT pg_reload_conf()")
            connection.execute(f"DROP ROLE {role}")


@pytest.mark.complete
def test_servers_that_are_away_and_names_that_are_wrong_are_told_apart(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setattr(cli, "KafkaConnect", lambda url, _: KafkaConnect(url, retry_s=0.5 if url == away else None))
    assert f'Kafka Connect does not answer at "{away}"' in deployment.fails("apply", HEADWATER_CONNECT=away)
    assert deployment.status(HEADWATER_CONNECT=away)["state"] == "UNKNOWN"
    said = deployment.fails(
        "apply", HEADWATER_SHOP_DATABASE=deployment.connection("shop_capture", port=str(free_port()))
    )
    assert "Connection refused" in said
    assert "start the server, or correct HEADWATER_SHOP_DATABASE" in said
    said = deployment.fails("apply", HEADWATER_SHOP_DATABASE=deployment.connection("shop_capture", dbname="nowhere"))
    assert "name an existing database in HEADWATER_SHOP_DATABASE" in said
    said = deployment.fails("apply", HEADWATER_SHOP_DATABASE=deployment.connection("nobody_at_all"))
    assert "CREATE ROLE nobody_at_all LOGIN REPLICATION" in said
    assert 'environment variable "HEADWATER_SHOP_DATABASE" is not set or empty' in deployment.fails(
        "apply", HEADWATER_SHOP_DATABASE=""
    )
    assert 'environment variable "HEADWATER_SHOP_SALT"' in deployment.fails("apply", HEADWATER_SHOP_SALT="")
    assert 'no source "erp": it has shop' in deployment.fails("apply", "erp")
    assert 'no source of the deployment captures the table "public.x"' in deployment.fails("snapshot", "public.x")
    assert "declare no source" in deployment.fails("status", HEADWATER_MODULES="listings")


@pytest.mark.complete
def test_a_slot_that_another_program_has_is_left_alone(deployment: Deployment) -> None:
    slot = f"{deployment.environment}_cdc_shop"
    with psycopg.connect(deployment.stack.endpoints.postgres, autocommit=True) as elsewhere:
        elsewhere.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
        said = deployment.fails("apply")
        elsewhere.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
    assert f"replication slot {slot} is another program's (plugin pgoutput, database headwater)" in said
    assert f"SELECT pg_drop_replication_slot('{slot}')" in said


@pytest.mark.complete
def test_a_slot_that_was_dropped_is_never_a_silent_gap(deployment: Deployment) -> None:
    """Neither if it is missing, nor if somebody creates it again."""
    names = SourceNames.of(shop, deployment.environment)
    free = f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{names.slot}' AND NOT active"
    drop = f"SELECT pg_drop_replication_slot('{names.slot}')"
    create = f"SELECT pg_create_logical_replication_slot('{names.slot}', 'pgoutput', failover => true)"
    gap = "INSERT INTO customers (public_id, name, email) VALUES (gen_random_uuid(), 'Gap', 'gap@example.org')"
    deployment.works("apply")
    eventually(lambda: deployment.status()["healthy"], "it captures")

    def is_lost() -> None:
        connect.resume(names.connector)
        eventually(lambda: deployment.status()["state"] == "FAILED", "the connector fails instead of skipping a change")
        (problem,) = deployment.status()["problems"]
        assert problem.startswith(f"replication slot {names.slot} is lost (it was dropped, or created again)")
        assert "remove shop, then apply, which reads all tables again, then sweep" in problem

    def stop() -> None:
        connect.stop(names.connector)
        eventually(lambda: connect.state(names.connector) == ConnectorState("STOPPED", ""), "it does not run")

    with closing(KafkaConnect(deployment.stack.endpoints.connect)) as connect:
        stop()
        eventually(lambda: deployment.sql(free), "the slot is free")
        deployment.sql(drop, role="shop_capture")
        deployment.sql(gap)
        is_lost()
        stop()
        deployment.sql(create, role="shop_capture")
        is_lost()


@pytest.mark.complete
def test_rows_whose_deletes_were_not_captured_are_swept(deployment: Deployment) -> None:
    with psycopg.connect(deployment.owner) as connection:
        fill(connection, 1, customers=20, products=5)
    deployment.works("apply")
    topics = {table: deployment.topic(table) for table in shop.tables}

    def rows_are_those_of_the_tables() -> bool:
        for table, topic in topics.items():
            topic.read()
            ((count,),) = deployment.sql(f"SELECT count(*) FROM {table.table}")
            if len(topic.rows) != count:
                return False
        return True

    eventually(rows_are_those_of_the_tables, "all rows are there")
    eventually(lambda: is_read(deployment), "the snapshot is over")
    assert "public.customers: 0 rows deleted" in deployment.works("sweep")
    deployment.sql("TRUNCATE order_lines, orders")
    deployment.sql("INSERT INTO orders (id, customer_id) SELECT 3, min(id) FROM customers")
    deployment.works("remove", "shop", "--yes")
    deployment.sql("DELETE FROM products WHERE sku = (SELECT min(sku) FROM products)")
    deployment.works("apply")
    eventually(lambda: is_read(deployment), "it is read again")
    assert not rows_are_those_of_the_tables(), "or nothing was missed"
    swept = deployment.works("sweep")
    assert "public.products: 1 rows deleted" in swept
    deployment.sql("INSERT INTO orders (id, customer_id) SELECT 4, min(id) FROM customers")
    eventually(rows_are_those_of_the_tables, "the topics have the rows of the tables")
    assert topics[Order].rows.keys() == {"3", "4"}
    assert "public.orders: 0 rows deleted" in deployment.works("sweep")


@pytest.fixture(scope="module")
def other_database() -> Iterator[Callable[[Mapping[str, str]], str]]:
    """Starts another PostgreSQL with these options; returns the connection of its owner."""
    with pytest.MonkeyPatch.context() as patch, own_folder() as folder:
        running: list[Stack] = []

        def start(options: Mapping[str, str]) -> str:
            patch.setattr(postgres, "OPTIONS", {**postgres.OPTIONS, **options})
            stack = Stack(StackSettings(folder / str(len(running)), free_ports()), ("postgres",))
            stack.start()
            running.append(stack)
            return stack.endpoints.postgres

        yield start
        for each in running:
            each.stop()


@pytest.mark.complete
def test_a_server_without_logical_replication_is_told_the_setting(
    deployment: Deployment, other_database: Callable[[Mapping[str, str]], str]
) -> None:
    server = other_database({"wal_level": "replica", "max_slot_wal_keep_size": "-1"})
    create_shop(server)
    address = make_conninfo(server, user="shop_capture", dbname="shop")
    said = deployment.fails("apply", HEADWATER_SHOP_DATABASE=address)
    assert "wal_level is replica: run ALTER SYSTEM SET wal_level = 'logical'" in said


@pytest.mark.complete
def test_a_slot_that_is_lost_is_named_by_apply_and_status(
    deployment: Deployment, other_database: Callable[[Mapping[str, str]], str]
) -> None:
    server = other_database({"wal_level": "logical", "max_slot_wal_keep_size": "1MB", "max_wal_size": "64MB"})
    create_shop(server)
    address = make_conninfo(server, user="shop_capture", dbname="shop")
    slot = f"{deployment.environment}_cdc_shop"
    with psycopg.connect(make_conninfo(server, dbname="shop"), autocommit=True) as connection:
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
        for _ in range(6):
            connection.execute("CREATE TABLE filler AS SELECT repeat(n::text, 200) FROM generate_series(1, 20000) n")
            connection.execute("DROP TABLE filler")
            connection.execute("SELECT pg_switch_wal()")
            connection.execute("CHECKPOINT")
    said = deployment.fails("apply", HEADWATER_SHOP_DATABASE=address)
    assert f"replication slot {slot} is lost" in said
    assert "raise max_slot_wal_keep_size" in said
    status = deployment.status(HEADWATER_SHOP_DATABASE=address)
    assert status["wal_status"] == "lost"
    assert any("is lost" in each for each in status["problems"])
