"""Programs start with what the Helm chart gives them: the settings of the golden files are read as programs do."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest
import trustme

from headwater.api.settings import ApiSettings, GuardSettings
from headwater.api.tls import TlsFiles
from headwater.commands.__main__ import HandlerVariables
from headwater.eventlog.actors import ActorVariables
from headwater.eventlog.capturing.settings import ConnectVariables, read_connect
from headwater.eventlog.errors import SettingError
from headwater.eventlog.personal.master_keys import new_master_key
from headwater.eventlog.personal.postgres import open_keys
from headwater.eventlog.programs.metrics import MetricsVariables
from headwater.eventlog.settings import LogSettings
from headwater.projections.settings import StoreSettings
from headwater.projections.spark.session import SparkSettings
from headwater.projections.spark.stream_queries.checkpoint import check_shared
from tests.support.helm_chart import GOLDEN, NAMES, programs, variables

Env = Mapping[str, str]
IMAGE: Final = {"HEADWATER_API_HOST": "0.0.0.0", "HEADWATER_METRICS_HOST": "0.0.0.0"}  # noqa: S104 - as in the image
ADDRESSES: Final = {
    "postgres": "postgresql://user:password@postgres:5432/headwater?sslmode=verify-full",
    "elasticsearch": "https://user:password@elasticsearch:9200",
    "valkey": "valkeys://user:password@valkey:6379",
    "connect": "http://connect:8083",
}


def spark(env: Env) -> None:
    """What a program that starts Spark's work reads."""
    assert SparkSettings.from_environment(env).master == env.get("SPARK_MASTER", "")
    check_shared(LogSettings.without_modules(env), env)


def guard(env: Env) -> None:
    """What the API knows of its callers; it may listen for others."""
    assert GuardSettings.from_environment(env)
    assert (
        TlsFiles.of(env.get("HEADWATER_API_CERTIFICATE", ""), env.get("HEADWATER_API_PRIVATE_KEY", "")) is None
    ) == ("HEADWATER_API_CERTIFICATE" not in env)


READ: Final[Mapping[str, tuple[Callable[[Env], object], ...]]] = {
    "api": (StoreSettings.from_environment, ApiSettings.from_environment, guard),
    "handler": (HandlerVariables.read,),
    "projections": (StoreSettings.from_environment, spark),
    "sources": (read_connect, ConnectVariables.read),
    "replay": (StoreSettings.from_environment, spark, ActorVariables.read),
    "plan": (StoreSettings.from_environment, ActorVariables.read),
    "create": (StoreSettings.from_environment, ActorVariables.read),
}


def environment(name: str, program: str, folder: Path) -> dict[str, str]:
    """The variables of a program of a set of values; its secrets and other files are in the folder."""
    authority = trustme.CA()
    certificate = authority.issue_cert("bank.example.com")
    texts = ADDRESSES | {
        "kafka-password": "password",
        "person-keys": "postgresql://keys:password@keys/keys",
        "master-key": new_master_key(),
        "kafka/ca.crt": authority.cert_pem.bytes().decode(),
        "api/keys.json": json.dumps({"keys": []}),
        "api/session-key": "k" * 32,
        "roles.json": json.dumps({"clerk": ["commands:account.*"]}),
        "database": "postgresql://capture@crm/crm",
        "connect-database": "postgresql://capture@crm/crm",
        "salt": "abc",
        **dict.fromkeys(("kafka/tls.crt", "api/tls.crt"), certificate.cert_chain_pems[0].bytes().decode()),
        **dict.fromkeys(("kafka/tls.key", "api/tls.key"), certificate.private_key_pem.bytes().decode()),
    }
    env = IMAGE | {"HEADWATER_STATE": str(folder / "state")}
    for variable, value in variables(programs(GOLDEN[name])[program]).items():
        given = str(value)
        if given.startswith(("/run/", "/etc/headwater/roles/")):
            path = given.removeprefix("/run/secrets/headwater/")
            text = texts.get(path) or texts[path.rpartition("/")[2]]
            file = folder / path.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            file.chmod(0o440)
            given = str(file)
        env[variable] = given
    return env


CASES: Final = [(name, program) for name in NAMES for program in programs(GOLDEN[name])]


@pytest.mark.parametrize(("name", "program"), CASES)
def test_a_program_reads_what_the_chart_gives_it(name: str, program: str, tmp_path: Path) -> None:
    env = environment(name, program, tmp_path)
    log = LogSettings.without_modules(env)
    assert log.bootstrap == env["HEADWATER_KAFKA"] and log.replication == 3
    assert log.security.user == env.get("HEADWATER_KAFKA_USER", "")
    has_metrics = MetricsVariables.read(env).metrics_port is not None
    assert has_metrics == (name != "kubernetes" and program in ("api", "handler", "projections", "sources"))
    for read in READ[program]:
        read(env)
    if "HEADWATER_KEYS_FILE" in env:
        open_keys(env, log.environment).close()


def test_a_program_would_say_what_it_cannot_read(tmp_path: Path) -> None:
    env = environment("production", "api", tmp_path)
    Path(env["HEADWATER_POSTGRES_FILE"]).unlink()
    with pytest.raises(SettingError, match="HEADWATER_POSTGRES_FILE"):
        StoreSettings.from_environment(env)
    known = ("HEADWATER_API_KEYS", "HEADWATER_API_ISSUER")
    with pytest.raises(SettingError, match="HEADWATER_API"):
        guard({each: value for each, value in env.items() if each not in known})
