"""Whatever an environment variable holds, a process starts with it, or says which variable is wrong."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Annotated, Final

import pytest

from headwater.api.guard.guard import open_guard
from headwater.api.guard.scopes import Declared
from headwater.api.server.workers import listen
from headwater.api.settings import ApiSettings
from headwater.commands.__main__ import HandlerVariables
from headwater.commands.declaring.registry import CommandRegistry
from headwater.compose.domains import read_deployed
from headwater.compose.errors import ComposeError
from headwater.compose.settings import StackSettings
from headwater.compose.state import StateDirectory
from headwater.eventlog.actors import actor_of
from headwater.eventlog.capturing import Captured, Hashed, Source
from headwater.eventlog.capturing.settings import SourceSettings, read_connect
from headwater.eventlog.errors import EventLogError, SettingError
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.programs.logs import log_to_stderr
from headwater.eventlog.settings import LogSettings
from headwater.projections.settings import StoreSettings
from headwater.projections.spark.session import SparkSettings
from headwater.projections.spark.setup import jars
from headwater.projections.spark.setup.jars import SPARK_LOCK, JarError, cache_directory, group_jars, read_lock
from headwater.projections.spark.setup.java import JavaError, locate_java
from headwater.projections.stores.declared import STORES
from headwater.projections.stores.open import open_reader, open_store
from tests.support.seeds import some_of

PAGE = (Path(__file__).parents[2] / "docs" / "settings.md").read_text().partition("## Development")[0]
DOCUMENTED = re.findall(r"^\| `([A-Z_<>]+)`", PAGE, re.MULTILINE)
HOSTILE: Final = (
    " ",
    "\n",
    "\udcff",
    "\x1b[31m",
    "0",
    "-1",
    "1.5",
    "²",
    "99999999999999999999999",
    "true",
    "a,b,,c",
    "a..b",
    "~no_such_user/x",
    "/proc/headwater",
    "/dev/null/x",
    "x" * 5_000,
    "host",
    "host:abc",
    "host:99999",
    "http://es:abc",
    "http://[::1",
    "http://",
    "valkey://h:abc",
    "valkey://h:1?db=x",
    "valkey://h:1?nothing=1",
    "postgresql://h:abc/x",
    "postgresql://h:99999/x",
    "mariadb://u@h:99999",
    "%",
    "${HOME}",
    "<>&\"'",
)


class Person(Captured, table="public.people", key="id"):
    id: int
    email: Annotated[str, Hashed()]


crm = Source(name="crm", tables=(Person,))


def start(env: Mapping[str, str], folder: Path) -> None:
    """Do what the processes do with their settings before the first contact to a server."""
    log_to_stderr(env, "test")
    log, stores = LogSettings.from_environment(env), StoreSettings.from_environment(env)
    log.make_state()
    CommandRegistry.load(log.modules)
    HandlerVariables.read(env)
    SparkSettings.from_environment(env)
    with closing(KafkaLog(log)):
        pass
    for name in STORES:
        with closing(open_store(name, stores)):
            open_reader(name, stores)
    read_connect(env)
    SourceSettings.from_environment(crm, env)
    actor_of(env)
    settings = ApiSettings.from_environment(env)
    open_guard(settings.guard, Declared(dict.fromkeys(("commands", "observations", "views", "streams"), frozenset())))
    with listen(settings):
        pass
    stack = StackSettings.from_environ(env)
    state = StateDirectory(stack.state)
    state.take()
    state.release()
    read_deployed("", env)
    locate_java()
    jars._settings(folder, use_poms=True)
    group_jars(read_lock(SPARK_LOCK)["spark"], cache_directory(env))


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Settings with which everything starts; nothing is downloaded."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jars, "_download", lambda *_: None)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    return {
        "HEADWATER_MODULES": "listings",
        "HEADWATER_STATE": str(tmp_path / "state"),
        "HEADWATER_API_PORT": str(port),
        crm.database: "postgresql://capture@db/crm",
        crm.salt: "pepper",
    }


NAMES: Final = [name.replace("<SOURCE>", "CRM") for name in DOCUMENTED]
AT_ONCE: Final = 8
"""Values of each variable in one run, other ones in each; a long run takes all."""


@pytest.mark.parametrize("name", NAMES)
def test_no_value_of_a_variable_ends_in_a_traceback(
    environment: dict[str, str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(environment, tmp_path)
    for value in some_of(HOSTILE, AT_ONCE, draw=1_000 + NAMES.index(name)):
        monkeypatch.setenv(name, value)
        try:
            start({**environment, name: value}, tmp_path)
        except (EventLogError, ComposeError, JarError, JavaError) as error:
            assert name in str(error), f"{value!r} is refused without its variable: {error}"
            assert "\n" not in str(error)
            assert str(error).isprintable()


REFUSED: Final = (
    ("HEADWATER_KAFKA", "host"),
    ("HEADWATER_KAFKA", "host:abc"),
    ("HEADWATER_KAFKA", "a:9092,b:99999"),
    ("HEADWATER_CONNECT_KAFKA", "host:abc"),
    ("HEADWATER_POSTGRES", "postgresql://h:abc/x"),
    ("HEADWATER_POSTGRES", "host"),
    ("HEADWATER_ELASTICSEARCH", "http://es:abc"),
    ("HEADWATER_ELASTICSEARCH", "http://es"),
    ("HEADWATER_ELASTICSEARCH", "http://[::1"),
    ("HEADWATER_VALKEY", "valkey://h:abc"),
    ("HEADWATER_VALKEY", "valkey://h:1?db=x"),
    ("HEADWATER_VALKEY", "valkey://h:1?nothing=1"),
    ("HEADWATER_CONNECT", "http://connect:abc"),
    ("HEADWATER_CRM_DATABASE", "postgresql://u@h:99999/x"),
    ("HEADWATER_CRM_SALT", "²"),
    ("HEADWATER_STATE", "/dev/null/x"),
    ("HEADWATER_CACHE", "/dev/null/x"),
    ("HEADWATER_CACHE", "~no_such_user/x"),
    ("HEADWATER_MAVEN", "mirror"),
    ("HEADWATER_LOG_LEVEL", "LOUD"),
    ("HEADWATER_LOG_FORMAT", "yaml"),
    ("HEADWATER_HANDLERS", "99999999999999999999999"),
    ("HEADWATER_RECEIPTS_DAYS", "99999999999999999999999"),
    ("HEADWATER_SPARK_MEMORY", "0g"),
    ("HEADWATER_SPARK_MEMORY", "99999g"),
    ("SPARK_MASTER", "host"),
    ("JAVA_HOME", "/dev/null/x"),
    ("HEADWATER_API_HOST", "host.invalid"),
    ("HEADWATER_API_HOST", "0.0.0.0"),  # noqa: S104
    ("HEADWATER_API_KEYS", "/dev/null/x"),
    ("HEADWATER_API_ISSUER", "http://login.example.com"),
    ("HEADWATER_API_AUDIENCE", "headwater"),
    ("HEADWATER_API_JWKS", "/dev/null/x"),
    ("HEADWATER_API_ROLES", "/dev/null/x"),
    ("HEADWATER_API_CERTIFICATE", "/dev/null/x"),
    ("HEADWATER_ACTOR", "process:x"),
    ("HEADWATER_API_HOST", "x" * 5_000),
    ("HEADWATER_MODULES", "a..b"),
    ("HEADWATER_KAFKA_CA", "/dev/null/x"),
    ("HEADWATER_VALKEY_PORT", "0"),
)


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_a_value_that_cannot_work_is_refused_at_the_start(
    environment: dict[str, str], name: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert name in NAMES
    monkeypatch.setenv(name, value)
    with pytest.raises((EventLogError, ComposeError, JarError, JavaError), match=name) as refused:
        start({**environment, name: value}, tmp_path)
    assert "Traceback" not in str(refused.value)


def test_a_taken_port_is_named(environment: dict[str, str], tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", int(environment["HEADWATER_API_PORT"]))),
        pytest.raises(SettingError, match=r"HEADWATER_API_PORT.*a free port on 127"),
    ):
        start(environment, tmp_path)
