"""What `headwater grants` allows follows from the lists that the programs themselves use, and leaves nothing out."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from headwater.commands import service
from headwater.commands.declaring.process import ProcessRegistry
from headwater.commands.declaring.registry import CommandRegistry
from headwater.eventlog.access import Operation, Program, Resource, Rule, account, commands_of, merged
from headwater.eventlog.capturing.declaring import SourceRegistry
from headwater.eventlog.ports import HANDLER, PROCESSES, ROUTER, Role
from headwater.eventlog.topics import EVENTS, RESEALED, RESEALING, TopicSpec, topic_specs
from headwater.projections.registry import ViewRegistry
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.declared import STORES
from headwater.projections.stores.open import backend
from headwater.projections.stores.postgres.store import grants as of_postgres
from headwater.projections.stores.valkey import store as valkey_grants
from headwater.replay.grants import Declared, rules_of
from tests.support.domains import SHIPPED
from tests.support.rights import allowed, declared

ROOT = Path(__file__).parents[3]


EVERYTHING = declared(*SHIPPED)


@pytest.mark.parametrize("spec", EVERYTHING.topics, ids=lambda spec: spec.name)
def test_each_topic_has_a_reader_and_a_writer(spec: TopicSpec) -> None:
    """A topic without them would work on a machine where everybody may do everything, and nowhere else."""
    assert spec.readers, f'say in the TopicSpec of "{spec.name}" which programs read it'
    assert spec.writers, f'say in the TopicSpec of "{spec.name}" which programs append to it'


@pytest.mark.parametrize("spec", EVERYTHING.topics, ids=lambda spec: spec.name)
def test_who_needs_a_topic_may_use_it_and_nobody_else(spec: TopicSpec) -> None:
    rules = rules_of(EVERYTHING)
    name = EVERYTHING.settings.topic(spec.name)
    for operation, users in ((Operation.READ, spec.readers), (Operation.WRITE, spec.writers)):
        may = {each for each in Program if operation in allowed(rules[account("env", each)], Resource.TOPIC, name)}
        assert may == set(users)


def test_events_are_appended_by_the_handler_only() -> None:
    for user, rules in rules_of(EVERYTHING).items():
        may = Operation.WRITE in allowed(rules, Resource.TOPIC, f"env.{EVENTS}")
        assert may == (user == "env_handler"), user


@pytest.mark.parametrize(("modules", "may"), [(SHIPPED, False), (("tests.support.personal_customers",), True)])
def test_the_api_records_erasures_of_persons_where_it_erases_any(modules: tuple[str, ...], may: bool) -> None:
    rules = rules_of(declared(*modules))["env_api"]
    assert (Operation.WRITE in allowed(rules, Resource.TOPIC, "env.audit")) == may


@pytest.mark.parametrize("topic", RESEALED)
@pytest.mark.parametrize("program", [Program.API, Program.HANDLER, Program.PROJECTIONS, Program.OPERATOR])
def test_who_uses_a_topic_sees_whether_it_is_being_copied(program: Program, topic: str) -> None:
    """Else a program would start with a topic that is incomplete."""
    spec = next(each for each in EVERYTHING.topics if each.name == topic)
    may = allowed(rules_of(EVERYTHING)[account("env", program)], Resource.TOPIC, f"env.{topic}{RESEALING}")
    assert (Operation.DESCRIBE in may) == (program in spec.readers | spec.writers | {Program.OPERATOR})
    assert not may & {Operation.READ, Operation.WRITE, Operation.DELETE}


def test_nobody_has_anything_of_another_deployment() -> None:
    for rules in rules_of(EVERYTHING).values():
        assert all(rule.name.startswith("env.") for rule in rules)


def test_roles_are_those_that_the_handler_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A role without rights would fail at the first start with them, on a broker that checks."""
    found: list[Role] = []

    class Recorded:
        def __init__(self, log: Any, role: Role, *_: Any) -> None:
            found.append(role)

    monkeypatch.setattr(service, "PartitionOwner", Recorded)
    for name in ("settle_starts", "settle_inputs", "settle_start", "instances_origin"):
        monkeypatch.setattr(service, name, lambda *_: None)
    log: Any = type("Log", (), {"settings": EVERYTHING.settings})()
    processes, commands = ProcessRegistry.load(SHIPPED), CommandRegistry.load(SHIPPED)
    slot: Any = SimpleNamespace(check=None)
    service.process_owners(log, commands, processes, slot, slot)
    for source in SourceRegistry.load(SHIPPED).sources.values():
        if source.outbox:
            service._outbox_owner(log, commands, source)
    assert {HANDLER, *found} == set(EVERYTHING.roles)
    assert len(found) > 4


@pytest.mark.parametrize("role", EVERYTHING.roles, ids=lambda role: role.name)
def test_the_handler_may_do_what_its_roles_do(role: Role) -> None:
    rules = rules_of(EVERYTHING)["env_handler"]
    assert Operation.READ in allowed(rules, Resource.TOPIC, f"env.{role.reads}")
    assert Operation.READ in allowed(rules, Resource.GROUP, f"env.{role.name}")
    assert Operation.WRITE in allowed(rules, Resource.TRANSACTIONS, f"env.{role.name}.3")
    for topic in role.owns:
        assert {Operation.READ, Operation.WRITE} <= allowed(rules, Resource.TOPIC, f"env.{topic}")


def test_the_operator_may_rebuild_what_the_read_side_builds() -> None:
    """In one deployment, a generation is made by either."""
    rules = rules_of(EVERYTHING)
    for span in rules["env_projections"]:
        if span.name == "env.live":  # it shows how far the live query is, which no rebuild does
            continue
        assert span.operations <= allowed(rules["env_operator"], span.resource, span.name), span


def test_the_read_side_uses_only_tables_that_a_view_reads() -> None:
    """Here no view does: the process alone reads customers."""
    customers = Declared.load(EVERYTHING.settings, ViewRegistry([]))
    rules = rules_of(customers)
    name = "env.cdc.shop.public.customers"
    assert Operation.WRITE not in allowed(rules["env_projections"], Resource.TOPIC, name)
    assert Operation.READ not in allowed(rules["env_projections"], Resource.TOPIC, name)
    assert Operation.READ in allowed(rules["env_handler"], Resource.TOPIC, name)
    assert Operation.WRITE in allowed(rules_of(EVERYTHING)["env_projections"], Resource.TOPIC, name)


def test_roles_without_a_process_are_not_granted() -> None:
    rules = rules_of(declared("listings"))["env_handler"]
    assert {rule.name for rule in rules if rule.resource == Resource.GROUP} == {"env.handler", "env.reader"}
    assert not {ROUTER, PROCESSES} & set(declared("listings").roles)


def test_whoever_looks_at_a_source_may_note_what_it_finds() -> None:
    """`headwater status` does so, too: see `find_unread`."""
    rules = rules_of(declared("shop"))
    may = {user for user in rules if Operation.WRITE in allowed(rules[user], Resource.TOPIC, "env.cdc.shop.signals")}
    assert may == {"env_sources", "env_operator"}


def test_accounts_of_captured_databases_come_with_a_source() -> None:
    assert {"env_sources", "env_connect"} <= rules_of(declared("shop")).keys()
    assert not {"env_sources", "env_connect"} & rules_of(declared("listings")).keys()


def test_commands_say_the_same_as_the_rules() -> None:
    """One command has all resources of an account that have the same rights."""
    for user, rules in rules_of(EVERYTHING).items():
        said = set()
        for line in commands_of({user: rules}):
            words = shlex.split(line)
            assert words[:6] == [
                "kafka-acls.sh",
                "--bootstrap-server",
                "$KAFKA",
                "--command-config",
                "$KAFKA_ADMIN",
                "--add",
            ]
            pairs = list(zip(words[6::2], words[7::2], strict=True))
            assert ("--allow-principal", f"User:{user}") in pairs
            operations = frozenset(Operation(value) for option, value in pairs if option == "--operation")
            is_prefix = ("--resource-pattern-type", "prefixed") in pairs
            for option, value in pairs:
                if option.removeprefix("--") in set(Resource):
                    said.add(Rule(Resource(option.removeprefix("--")), value, operations, is_prefix))
        assert said == set(merged(rules))


def test_what_runs_in_valkey_is_allowed_and_nothing_else() -> None:
    """The scripts and calls of the sources, since a refusal would only show on a server that checks."""
    writer, reader = ROOT / "projections" / "stores" / "valkey", ROOT / "api" / "reads" / "valkey.py"
    assert called_in(reader.read_text()) == set(valkey_grants.READS)
    assert called_in("\n".join(path.read_text() for path in writer.glob("*.py"))) == set(valkey_grants.WRITES)


CALLS = re.compile(
    r"redis\.call\('(\w+)'|(?:client|pipeline)\.(?!execute|pipeline|aclose|close|from_url|hashes)(\w+)\(|execute_command\(\"(\w+)\""
)


def called_in(source: str) -> set[str]:
    """The commands in a source, as Valkey names them."""
    names = {next(filter(None, found)).lower() for found in CALLS.findall(source)}
    assert "hget" in names
    iterated = {"scan_iter": "scan", "zscan_iter": "zscan", "script_load": "script|load"}
    return {iterated.get(name, name) for name in names}


@pytest.mark.parametrize("store", [each for each in STORES if backend(each).grants])
def test_each_server_has_accounts_of_the_environment_only(store: str) -> None:
    of_store = backend(store).grants
    assert of_store is not None
    text = of_store(StoreSettings(environment="env"))
    users = set(re.findall(r"\benv_\w+", text))
    assert {"env_api", "env_projections", "env_operator"} <= users <= {f"env_{each}" for each in ("owner", *Program)}
    assert "env_handler" not in users


@pytest.mark.parametrize("name", ['x"; DROP TABLE y', "x\n\\! id", "X y'z", "{schema}"])
def test_a_database_may_have_any_name(name: str) -> None:
    """What an operator pipes into psql as a superuser is what it seems to be."""
    text = of_postgres(StoreSettings(environment="env", postgres=make_conninfo("", dbname=name)))
    quoted = '"' + name.replace('"', '""') + '"'
    assert text.count(f"DATABASE {quoted} ") == 3
    plain = of_postgres(StoreSettings(environment="env", postgres="dbname=plain"))
    assert text.replace(quoted, '"plain"').splitlines()[1:] == plain.splitlines()[1:]
    assert text.startswith("-- ") and text.splitlines()[0].endswith('".'), "the comment ends with its line"


def test_no_program_creates_topics_by_the_list_of_another() -> None:
    """Each TopicSpec of every deployment is in the list that `headwater create` creates."""
    names = {topic.name for topic in EVERYTHING.topics}
    assert len(names) == len(EVERYTHING.topics), "Kafka's client crashes if a topic is named twice"
    assert {spec.name for spec in topic_specs(EVERYTHING.settings)} <= names
    processes, sources = ProcessRegistry.load(SHIPPED), SourceRegistry.load(SHIPPED).sources
    assert set(processes.by_topic) <= names
    assert {table.topic() for source in sources.values() for table in source.tables} <= names
