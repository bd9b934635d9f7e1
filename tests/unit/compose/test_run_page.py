"""What `make run` prints: a page of commands that can be copied, and nothing of the servers' chatter."""

from __future__ import annotations

import json
import logging
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from rich.console import Console

from headwater.commands.codec import read_command
from headwater.commands.declaring.observation import ObservationRegistry
from headwater.commands.declaring.registry import CommandRegistry
from headwater.compose.page import TO_TRY_ALWAYS, page, secrets, shared_settings
from headwater.compose.run import environment_of, log_to_file
from headwater.compose.samples.sample import to_try
from headwater.compose.settings import Ports, StackSettings
from headwater.eventlog.capturing import SourceRegistry
from headwater.eventlog.capturing.cli import app as sources
from headwater.eventlog.programs.modules import shipped_domains
from headwater.eventlog.programs.running_deployment import published
from headwater.eventlog.security import SECURITY_VARIABLES
from headwater.eventlog.settings import LogSettings
from headwater.projections.registry import ViewRegistry

pytestmark = pytest.mark.programs

ELSEWHERE = ("the current folder", "a folder with other packages", "a script")
"""Where a module may be found, if not by PYTHONPATH."""

API = "http://127.0.0.1:18080"
SETTINGS = StackSettings(Path("/home/ada/.headwater"))


def commands(text: str) -> list[str]:
    """The lines that a shell would run."""
    return [
        line for line in text.partition("To try in another terminal:\n")[2].splitlines() if line[:1] not in ("", "#")
    ]


OWN = "headwater.samples.payments.domain"
"""A module, and not the name of a sample."""


@pytest.mark.parametrize(
    "modules",
    [
        (),
        ("listings",),
        ("orders",),
        ("orders", OWN, "listings"),
        ("shop",),
        ("sensors", "ski_lifts"),
        ("web", "payments"),
        ("checkouts", "buses", "shop_floor", "saved_searches"),
    ],
)
def test_each_command_is_one_line_that_a_shell_reads(monkeypatch: pytest.MonkeyPatch, modules: Sequence[str]) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    found = [line for line in commands(page(API, SETTINGS, modules)) if not line.startswith("eval ")]
    assert len(found) == sum(len(to_try(name)) for name in modules if name != OWN) + len(TO_TRY_ALWAYS)
    for command in found:
        words = shlex.split(command)
        assert words[0] == "curl" or Path(words[0]).name in ("replay", "headwater", "python")
        bodies = [json.loads(word) for word in words if word.startswith("{")]
        assert len(bodies) == command.count("-d ")
        assert "{" not in " ".join(word for word in words if not word.startswith("{"))
    assert not modules or any(len(command) > 80 for command in found), "long ones are not broken"


def test_what_is_to_be_tried_is_of_the_domains_that_run() -> None:
    only_orders = page(API, SETTINGS, ("orders",))
    assert "listing" not in only_orders
    assert "replay rebuild large_order_lines" in only_orders
    assert "order" not in page(API, SETTINGS, ("listings",))
    assert "replay rebuild customer_360" in page(API, SETTINGS, ("shop",))


@pytest.mark.parametrize("domain", shipped_domains())
def test_what_is_to_be_tried_with_a_domain_is_in_it(domain: str) -> None:
    registry, views = CommandRegistry.load([domain]), ViewRegistry.load([domain])
    for _, command in to_try(domain):
        words = shlex.split(command.format(api=API, bin="bin"))
        if words[0] != "curl":
            continue
        (url,) = (urlsplit(word) for word in words if word.startswith(API))
        _, what, name, *_ = url.path.split("/")
        if what == "commands":
            read_command(registry.command(name), json.loads(words[-1]))
        elif what == "observations":
            ObservationRegistry.load([domain]).read(name, words[-1].encode())
        else:
            assert name in (registry.aggregates if what == "streams" else views.views)


def test_another_terminal_can_capture_the_shop_at_once() -> None:
    given = shared_settings(SETTINGS, environment_of(SETTINGS, ("shop",), {}), ("shop",))
    (source,) = SourceRegistry.load(("shop",)).sources.values()
    assert {source.database, source.salt, "HEADWATER_CONNECT"} < given.keys()
    assert given[source.database] == SETTINGS.endpoints.shop_database
    verbs = {command.name or command.callback.__name__ for command in sources.registered_commands if command.callback}
    shop = [shlex.split(command)[2:] for _, command in to_try("shop") if "headwater sources" in command]
    assert {verb for verb, *_ in shop} == {"status"} <= verbs


PAGE = """
Headwater is running. The documentation of the API is at http://127.0.0.1:18080/docs.
The console, which shows how everything is and why, is at http://127.0.0.1:18080/console.
Ctrl-C stops it. Its data is in /home/ada/.headwater, its logs are in /home/ada/.headwater/logs.

To try in another terminal:

# once per terminal; not needed in this folder
eval "$({BIN}/headwater env /home/ada/.headwater)"

# one listing
curl -sS http://127.0.0.1:18080/views/listings/sacramento-1
# a search
curl -sS 'http://127.0.0.1:18080/views/listing_search/search?q=condo&price.lte=150000&sort=price&limit=3'
# a city's market
curl -sS http://127.0.0.1:18080/views/city_market/Sacramento
# change a price
curl -sS -X POST http://127.0.0.1:18080/commands/listing.change_price -H 'content-type: application/json' -d '{BODY}'
# its history
curl -sS http://127.0.0.1:18080/streams/listing/sacramento-1
# the state of the views
{BIN}/replay status
# rebuild a view while it answers queries
{BIN}/replay rebuild listings
# follow the logs
{BIN}/headwater stack logs --follow"""


def test_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / ".venv/bin/python"))
    expected = PAGE.replace("{BODY}", '{"listing_id": "sacramento-1", "price": 61000}')
    expected = expected.replace("{BIN}", str(tmp_path / ".venv/bin"))
    assert page(API, SETTINGS, ("listings",)) == expected


def test_the_settings_are_those_of_what_runs_whatever_the_other_terminal_has() -> None:
    given = {
        "HEADWATER_API_PORT": "8080",
        "HEADWATER_KAFKA_PORT": "29092",
        "HEADWATER_MODULES": "something.older",
        "HEADWATER_KAFKA": "production:9092",
        "HEADWATER_KAFKA_SECURITY": "SASL_SSL",
        "HEADWATER_PARTITIONS": "8",
        "HEADWATER_HANDLERS": "2",
        "HTTP_PROXY": "http://proxy:3128",
    }
    settings = replace(SETTINGS, ports=Ports(kafka=29092))
    shown = shared_settings(settings, given | environment_of(settings, (OWN,), given), (OWN,))
    assert shown == {
        "HEADWATER_ENVIRONMENT": "headwater",
        "HEADWATER_MODULES": OWN,
        "HEADWATER_STATE": "/home/ada/.headwater",
        "HEADWATER_PARTITIONS": "8",
        "HEADWATER_KAFKA": "127.0.0.1:29092",
        **dict.fromkeys(SECURITY_VARIABLES, ""),
        "HEADWATER_POSTGRES": SETTINGS.endpoints.postgres,
        "HEADWATER_ELASTICSEARCH": SETTINGS.endpoints.elasticsearch,
        "HEADWATER_VALKEY": SETTINGS.endpoints.valkey,
        "no_proxy": "127.0.0.1",
    }


def test_secrets_are_shared_and_named_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "crm_of_bo.py").write_text(
        "from headwater.eventlog.capturing import Captured, Source\n"
        "class Client(Captured, table='public.clients', key='id'):\n    id: int\n"
        "crm = Source(name='crm', tables=(Client,))\n"
    )
    used = {
        "HEADWATER_CRM_DATABASE": "postgresql://reader:SECRET@db/crm",
        "HEADWATER_CRM_CONNECT_DATABASE": "postgresql://reader:SECRET@db/crm",
        "HEADWATER_CRM_SALT_FILE": "/run/secrets/salt",
        "HEADWATER_SHOP_SALT": "SECRET",
        "HEADWATER_MASTER_KEY": "SECRET",
    }
    of_other_servers = {
        "HEADWATER_KAFKA_PASSWORD": "SECRET",
        "HEADWATER_MAVEN": "https://ada:SECRET@mirror",
        "HEADWATER_POSTGRES": "postgresql://reader:SECRET@db/crm",
        "HEADWATER_VALKEY_FILE": "/run/secrets/valkey",
    }
    modules, given = ("shop", "crm_of_bo"), used | of_other_servers
    shared = shared_settings(SETTINGS, given | environment_of(SETTINGS, modules, given), modules)
    assert shared.items() >= used.items()
    assert {name: shared.get(name, "") for name in ("HEADWATER_KAFKA_PASSWORD", "HEADWATER_VALKEY_FILE")} == {
        "HEADWATER_KAFKA_PASSWORD": "", "HEADWATER_VALKEY_FILE": "",
    }  # fmt: skip
    assert shared["HEADWATER_POSTGRES"] == SETTINGS.endpoints.postgres and "HEADWATER_MAVEN" not in shared
    assert set(secrets(given, modules)) == set(used)


@pytest.mark.parametrize(
    "found_by",
    ["PYTHONPATH", *(pytest.param(found_by, marks=pytest.mark.complete) for found_by in ELSEWHERE)],
)
def test_the_settings_work_in_a_clean_shell_in_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found_by: str
) -> None:
    (folder := tmp_path / "my bank").mkdir()
    (folder / "bank_of_ada.py").write_text("")
    environ = {"HEADWATER_ENVIRONMENT": "bank", "HEADWATER_CACHE": str(tmp_path / "cache")}
    if found_by == "a folder with other packages":
        for name in ("projections", "replay"):
            (folder / name).mkdir()
            (folder / name / "__init__.py").write_text("")
    monkeypatch.chdir(tmp_path if found_by == "PYTHONPATH" else folder)
    if found_by == "PYTHONPATH":
        environ["PYTHONPATH"] = "my bank"
    # `python -m` and PYTHONPATH put it first, a console script last
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)] if found_by == "a script" else [str(folder), *sys.path])
    settings = StackSettings(tmp_path / "my state", Ports(kafka=29092))
    modules = ("bank_of_ada",)
    (line,) = (line for line in page(API, settings, modules).splitlines() if line.startswith("eval "))
    shared = shared_settings(settings, environ | environment_of(settings, modules, environ), modules)
    settings.state.mkdir()
    script = (
        "import os; from headwater.replay.deployment import *\n"
        "from headwater.projections.spark.setup.jars import cache_directory as c\n"
    )
    script += "with open_deployment(os.environ) as d: print(d.settings, d.stores.postgres, c(os.environ), sep='\\n')"
    with published(settings.state, shared, []):
        ran = subprocess.run(
            ["env", "-i", "bash", "-c", f"{line}\n{shlex.quote(sys.executable)} -c {shlex.quote(script)}"],
            cwd="/",
            capture_output=True,
            text=True,
            timeout=600,
        )
    assert ran.returncode == 0, ran.stderr
    log, postgres, cache = ran.stdout.splitlines()
    expected = LogSettings("bank", "127.0.0.1:29092", state=tmp_path / "my state", modules=("bank_of_ada",))
    assert (log, postgres, cache) == (str(expected), settings.endpoints.postgres, str(tmp_path / "cache"))


@pytest.fixture
def loggers() -> Iterator[None]:
    """What is set up for the whole process is put back."""
    touched = [logging.getLogger(name) for name in ("", "headwater.projections.supervision", "httpx")]
    before = [(each.handlers[:], each.level) for each in touched]
    yield
    for logger, (handlers, level) in zip(touched, before, strict=True):
        for handler in set(logger.handlers) - set(handlers):
            handler.close()
        logger.handlers = handlers
        logger.setLevel(level)


@pytest.mark.usefixtures("loggers")
def test_logs_go_to_a_file_and_only_what_was_given_up_is_shown(tmp_path: Path) -> None:
    shown, path = StringIO(), tmp_path / "run.log"
    log_to_file(path, Console(file=shown, width=40))
    watched = logging.getLogger("headwater.projections.supervision.supervised")
    logging.getLogger("httpx").info("HTTP Request: GET /health/ready")
    watched.warning("'api' exited; restart 1 in 0.2 s")
    watched.error("'api' exited with status 3; given up after 8 restarts; see '/home/ada/.headwater/logs/api.log'")
    assert [line.split(" ", 3)[2] for line in path.read_text().splitlines()] == ["WARNING", "ERROR"]
    assert shown.getvalue().splitlines() == [
        "'api' exited with status 3; given up after 8 restarts; see '/home/ada/.headwater/logs/api.log'"
    ]
