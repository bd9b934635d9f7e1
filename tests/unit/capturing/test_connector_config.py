"""The configuration of the connector, the names of a source, and the settings it needs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field

from headwater.eventlog.capturing import Captured, Hashed, Source, Truncated
from headwater.eventlog.capturing.connector import (
    POSTGRES_SESSION,
    changed_keys,
    connector_config,
    differences,
    plain_secrets,
    tables_to_read_again,
    undeclared,
)
from headwater.eventlog.capturing.naming import SourceNames, source_topics
from headwater.eventlog.capturing.postgres.database import PostgresAddress
from headwater.eventlog.capturing.settings import SourceSettings
from headwater.eventlog.errors import SettingError
from headwater.eventlog.settings import LogSettings


class Person(Captured, table="public.people", key="id"):
    id: int
    name: Annotated[str, Truncated(10)]
    motto: Annotated[str, Truncated(10)]
    email: Annotated[str, Hashed()]


class Visit(Captured, table="crm.visits", key=("person", "number")):
    person: int
    number: int
    phone: Annotated[str | None, Hashed()]


CRM = Source(name="crm", tables=(Person, Visit), heartbeat_ms=500)
VARIABLES = {
    "HEADWATER_ENVIRONMENT": "test",
    "HEADWATER_MODULES": "crm",
    "HEADWATER_KAFKA": "kafka:9092",
    "HEADWATER_CRM_DATABASE": "postgresql://reader:p%40ss@db.example:5433/crm?sslmode=verify-full&sslrootcert=/ca.pem",
    "HEADWATER_CRM_SALT": "pepper",
}

SECURED = {
    "HEADWATER_KAFKA_SECURITY": "SASL_PLAINTEXT",
    "HEADWATER_KAFKA_USER": "u",
    "HEADWATER_KAFKA_PASSWORD": "jaas-secret",
}


def config(version: int = 18, /, **variables: str) -> dict[str, str]:
    settings = SourceSettings.from_environment(CRM, {**VARIABLES, **variables})
    return connector_config(CRM, settings, version)


def test_exactly_the_declared_columns_are_captured_and_masked() -> None:
    made = config()
    assert made["table.include.list"] == r"public\.people,crm\.visits"
    patterns = [re.compile(each) for each in made["column.include.list"].split(",")]

    def is_captured(name: str) -> bool:
        return any(pattern.fullmatch(name) for pattern in patterns)

    assert all(map(is_captured, ("public.people.id", "public.people.email", "crm.visits.phone")))
    assert not any(
        map(is_captured, ("public.people.password", "public.peopleXid", "crm.visits.email", "public_people.id"))
    )
    assert made["message.key.columns"] == r"public\.people:id;crm\.visits:person,number"
    assert made["column.mask.hash.v2.SHA-256.with.salt.pepper"] == r"public\.people\.email,crm\.visits\.phone"
    assert made["column.truncate.to.10.chars"] == r"public\.people\.name,public\.people\.motto"


def test_masked_columns_are_not_read_again_because_values_that_are_pass_no_mask() -> None:
    made = config()
    (name,) = made["post.processors"].split(",")
    prefix = f"post.processors.{name}.reselect"
    excluded = [re.compile(each) for each in made[f"{prefix}.columns.exclude.list"].split(",")]
    columns = ("public.people:id", "public.people:name", "public.people:motto", "public.people:email")
    assert [any(each.fullmatch(column) for each in excluded) for column in columns] == [False, True, True, True]
    assert any(each.fullmatch("crm.visits:phone") for each in excluded)
    assert f"{prefix}.columns.include.list" not in made, "Debezium ignores the other list if it has this one"
    assert made[f"{prefix}.null.values"] == "false"


def test_every_name_carries_the_environment() -> None:
    made = config()
    names = SourceNames.of(CRM, "test")
    assert (names.connector, names.slot) == ("test.cdc.crm", "test_cdc_crm")
    assert made["topic.prefix"] == "test.cdc.crm"
    assert made["slot.name"] == made["publication.name"] == "test_cdc_crm"
    topics = [LogSettings(environment="test").topic(topic.name) for topic in source_topics(CRM, LogSettings())]
    assert topics[:2] == ["test.cdc.crm.public.people", "test.cdc.crm.crm.visits"]
    used = {made["topic.heartbeat.name"], made["signal.kafka.topic"], made["notification.sink.topic.name"]}
    used |= {f"{made['topic.prefix']}.{made['topic.transaction']}", "test.cdc.crm.message"}
    assert set(topics[2:]) == used, "every topic that the connector writes or reads is made beforehand"


def test_the_longest_names_fit_postgresql() -> None:
    class Thing(Captured, table="a.b", key="id"):
        id: int

    source = Source(name="s" * 24, tables=(Thing,))
    assert len(SourceNames.of(source, "e" * 31).slot) <= 63


def test_the_database_is_as_connect_reaches_it() -> None:
    made = config()
    assert {name: value for name, value in made.items() if name.startswith("database.")} == {
        "database.hostname": "db.example",
        "database.port": "5433",
        "database.dbname": "crm",
        "database.user": "reader",
        "database.password": "p@ss",
        "database.initial.statements": POSTGRES_SESSION,
        "database.sslmode": "verify-full",
        "database.sslrootcert": "/ca.pem",
    }
    elsewhere = config(
        HEADWATER_CRM_CONNECT_DATABASE="host=inside dbname=crm user=c password=${env:CRM_PASSWORD}",
        HEADWATER_CONNECT_KAFKA="inside:9092",
    )
    assert elsewhere["database.hostname"] == "inside"
    assert elsewhere["database.password"] == "${env:CRM_PASSWORD}"
    assert elsewhere["signal.kafka.bootstrap.servers"] == "inside:9092"


def test_only_a_server_that_can_copies_its_slot_to_standbys() -> None:
    assert config(17)["slot.failover"] == "true"
    assert config(16)["slot.failover"] == "false"


def test_a_secured_kafka_is_for_signals_too() -> None:
    made = config(**SECURED)
    assert made["signal.consumer.security.protocol"] == "SASL_PLAINTEXT"
    assert "jaas-secret" in made["signal.consumer.sasl.jaas.config"]


def test_differences_name_what_changes_and_no_secret() -> None:
    wanted = config(**SECURED)
    assert differences(wanted, {**wanted, "name": "test.cdc.crm"}) == []
    found = {**wanted, "database.password": "old-one", "poll.interval.ms": "500", "snapshot.fetch.size": "1"}
    found["column.mask.hash.v2.SHA-256.with.salt.cumin"] = found.pop("column.mask.hash.v2.SHA-256.with.salt.pepper")
    lines = differences(wanted, found)
    assert "~ poll.interval.ms = 10 (was 500)" in lines
    assert "- snapshot.fetch.size = 1" in lines
    assert "~ database.password = … (was …)" in lines
    shown = "\n".join([*lines, *differences(wanted, {})])
    for secret in ("p@ss", "old-one", "pepper", "cumin", "jaas-secret"):
        assert secret not in shown


def test_rows_are_read_again_if_a_column_is_new_or_masked_otherwise() -> None:
    wanted = config()
    assert tables_to_read_again(wanted, wanted) == set()
    fewer = {**wanted, "column.include.list": wanted["column.include.list"].replace(r",public\.people\.motto", "")}
    assert tables_to_read_again(wanted, fewer) == {"public.people"}
    assert tables_to_read_again(fewer, wanted) == set(), "a column is captured no longer"
    assert tables_to_read_again(wanted, config(HEADWATER_CRM_SALT="cumin")) == {"public.people", "crm.visits"}
    plain = {name: value for name, value in wanted.items() if not name.startswith("column.truncate")}
    assert tables_to_read_again(wanted, plain) == tables_to_read_again(plain, wanted) == {"public.people"}


def test_a_changed_key_is_noticed() -> None:
    wanted = config()
    assert changed_keys(wanted, wanted) == []
    other = {**wanted, "message.key.columns": r"public\.people:name;public\.more:id"}
    assert changed_keys(wanted, other) == ["public.people"]
    assert changed_keys(wanted, {}) == []


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"HEADWATER_CRM_DATABASE": ""}, 'HEADWATER_CRM_DATABASE" is not set or empty'),
        ({"HEADWATER_CRM_DATABASE": "postgresql://u:secret@/crm"}, "lacks host"),
        ({"HEADWATER_CRM_DATABASE": "postgresql://u:secret@a,b/crm"}, "one host"),
        ({"HEADWATER_CRM_DATABASE": "mysql://u:secret@a/crm"}, "postgresql://"),
        ({"HEADWATER_CRM_DATABASE": "secret"}, "postgresql://"),
        ({"HEADWATER_CRM_SALT": ""}, "HEADWATER_CRM_SALT.*secret text"),
        ({"HEADWATER_CRM_SALT": "a.b"}, "letters and digits"),
        ({"HEADWATER_CONNECT": "connect:8083"}, "HEADWATER_CONNECT.*http://"),
        ({"HEADWATER_CONNECT": "http://connect:x"}, "HEADWATER_CONNECT.*http://"),
    ],
)
def test_a_wrong_setting_is_named_without_its_secret(variables: dict[str, str], said: str) -> None:
    with pytest.raises(SettingError, match=said) as wrong:
        config(**variables)
    assert "u:secret" not in str(wrong.value)
    assert wrong.value.__cause__ is None


def test_a_password_shows_in_no_repr() -> None:
    assert "p@ss" not in repr(PostgresAddress.read("X", VARIABLES["HEADWATER_CRM_DATABASE"]))
    assert "pepper" not in repr(SourceSettings.from_environment(CRM, VARIABLES))


def test_only_messages_that_headwater_reads_are_captured() -> None:
    assert config()["message.prefix.include.list"] == "headwater"
    outbox = replace(CRM, outbox=True)
    made = connector_config(outbox, SourceSettings.from_environment(outbox, VARIABLES), 18)
    assert made["message.prefix.include.list"] == r"headwater,headwater\.command"


def test_names_of_key_columns_are_no_regular_expressions() -> None:
    class Odd(Captured, table="public.odd", key=("a$b", "c")):
        a: Annotated[int, Field(alias="a$b")]
        c: int

    source = Source(name="odd", tables=(Odd,))
    variables = {**VARIABLES, "HEADWATER_ODD_DATABASE": VARIABLES["HEADWATER_CRM_DATABASE"]}
    made = connector_config(source, SourceSettings.from_environment(source, variables), 18)
    assert made["message.key.columns"] == r"public\.odd:a\$b,c"


REFERENCES = {
    "HEADWATER_CRM_CONNECT_DATABASE": "postgresql://reader:${env:CRM_PASSWORD}@db/crm",
    "HEADWATER_CONNECT_KAFKA_PASSWORD": "${file:/run/secrets/kafka.properties:password}",
}


def test_a_reference_takes_the_place_of_each_secret() -> None:
    made = config(**SECURED, **REFERENCES)
    assert made["database.password"] == "${env:CRM_PASSWORD}"
    assert 'password="${file:/run/secrets/kafka.properties:password}"' in made["signal.consumer.sasl.jaas.config"]
    assert "jaas-secret" not in str(made)
    own = SourceSettings.from_environment(CRM, {**VARIABLES, **SECURED, **REFERENCES}).log.security
    assert own.password == SECURED["HEADWATER_KAFKA_PASSWORD"], "this process logs in by itself"


def test_the_key_of_a_certificate_may_be_a_reference(tmp_path: Path) -> None:
    pem = tmp_path / "pem"
    pem.write_text("-----BEGIN PRIVATE KEY-----\nsecret\n")
    variables = {
        "HEADWATER_KAFKA_SECURITY": "SSL",
        "HEADWATER_KAFKA_CERTIFICATE": str(pem),
        "HEADWATER_KAFKA_KEY": str(pem),
    }
    assert warnings(variables)[1].startswith("Kafka's key will be stored in plain text")
    with_reference = {**variables, "HEADWATER_CONNECT_KAFKA_KEY": "${env:KEY}"}
    assert config(**with_reference)["signal.consumer.ssl.keystore.key"] == "${env:KEY}"
    assert len(warnings(with_reference)) == 1


def warnings(variables: Mapping[str, str]) -> list[str]:
    return plain_secrets(SourceSettings.from_environment(CRM, {**VARIABLES, **variables}), CRM)


def test_secrets_that_connect_would_store_are_named_with_their_variables() -> None:
    assert warnings({**SECURED, **REFERENCES}) == []
    database, kafka = warnings(SECURED)
    assert "let HEADWATER_CRM_CONNECT_DATABASE have a reference" in database
    assert "let HEADWATER_CONNECT_KAFKA_PASSWORD have a reference" in kafka
    assert not any(secret in f"{database}{kafka}" for secret in ("p@ss", "jaas-secret"))
    (prefix,) = warnings({"HEADWATER_CRM_CONNECT_DATABASE": "postgresql://r:x${env:CRM}@db/crm"})
    assert prefix == database, "it has more than the reference"


@pytest.mark.parametrize("name", ["HEADWATER_CONNECT_KAFKA_PASSWORD", "HEADWATER_CONNECT_KAFKA_KEY"])
@pytest.mark.parametrize("value", ["hush", "${hush}", '${env:A"; x="}', "${env:HUSH}", "${env:A}${env:B}"])
def test_what_is_no_reference_or_is_not_used_is_refused_without_its_value(name: str, value: str) -> None:
    secured = {} if value == "${env:HUSH}" else SECURED
    with pytest.raises(SettingError, match=name) as wrong:
        config(**{**secured, name: value})
    assert "hush" not in str(wrong.value).lower()


def test_the_password_of_connect_shows_in_no_repr() -> None:
    variables = {**VARIABLES, "HEADWATER_CONNECT": "http://me:hush@connect:8083"}
    settings = SourceSettings.from_environment(CRM, variables)
    assert settings.connect == "http://me:hush@connect:8083"
    assert "hush" not in repr(settings)
    with pytest.raises(SettingError, match="HEADWATER_CONNECT") as wrong:
        config(HEADWATER_CONNECT="http://me:hush@connect:x")
    assert "hush" not in str(wrong.value)


def test_what_a_connector_captures_otherwise_than_declared_is_named() -> None:
    wanted = config()
    assert undeclared(wanted, config(HEADWATER_CRM_SALT="other", HEADWATER_KAFKA="elsewhere:9092")) == []
    masks = next(name for name in wanted if name.startswith("column.mask.hash"))
    clear = {name: value for name, value in wanted.items() if name != masks}
    assert undeclared(wanted, clear) == ["it has in plaintext public.people.email, crm.visits.phone"]
    fewer = wanted | {"column.include.list": wanted["column.include.list"].replace(r",public\.people\.motto", "")}
    assert undeclared(wanted, fewer) == ["it lacks public.people.motto"]
    more = wanted | {"column.include.list": wanted["column.include.list"] + r",public\.people\.iban"}
    assert undeclared(wanted, more) == ["it has, though no class does, public.people.iban"]
    assert undeclared(wanted, wanted | {"heartbeat.interval.ms": "9"}) == ["its heartbeat.interval.ms differs"]
