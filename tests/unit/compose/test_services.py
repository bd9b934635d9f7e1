"""The processes of `make run`: which there are, and with which settings."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from compose.run import environment_of, watched_sources
from compose.services import service_specs
from compose.settings import StackSettings
from eventlog.capturing import SourceRegistry
from eventlog.capturing.postgres.address import PostgresAddress
from eventlog.capturing.settings import SourceSettings

SETTINGS = StackSettings(Path("/home/ada/.headwater"))
OWN = """
from eventlog.capturing import Captured, Source

class Client(Captured, table="public.clients", key="id"):
    id: int

crm = Source(name="crm", tables=(Client,))
"""


def test_connectors_of_sources_are_watched() -> None:
    environment = environment_of(SETTINGS, ("listings", "shop"), {})
    output = StringIO()
    watched = watched_sources(("listings", "shop"), environment, Console(file=output))
    *others, watch = service_specs(SETTINGS, 18080, environment, watched)
    assert [each.name for each in others] == ["commands", "projections", "api"]
    assert watch.argv[1:] == ("-m", "eventlog.sources", "watch", "shop")
    (source,) = SourceRegistry.load(("shop",)).sources.values()
    settings = SourceSettings.from_environment(source, watch.env)
    assert isinstance(settings.database, PostgresAddress)
    assert (settings.connect, settings.database.database) == (SETTINGS.endpoints.connect, "shop")
    assert output.getvalue() == ""


def test_without_sources_nothing_is_watched() -> None:
    environment = environment_of(SETTINGS, ("listings",), {})
    watched = watched_sources(("listings",), environment, Console(file=StringIO()))
    assert [each.name for each in service_specs(SETTINGS, 18080, environment, watched)] == [
        "commands",
        "projections",
        "api",
    ]


def test_the_salt_of_the_user_is_kept() -> None:
    assert environment_of(SETTINGS, ("shop",), {})["HEADWATER_SHOP_SALT"] == "local"
    assert "HEADWATER_SHOP_SALT" not in environment_of(SETTINGS, ("shop",), {"HEADWATER_SHOP_SALT": "mine"})


def test_a_source_without_settings_is_named_and_does_not_end_the_watch_over_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "crm_of_ada.py").write_text(OWN)
    modules, output = ("shop", "crm_of_ada"), StringIO()
    environment = environment_of(SETTINGS, modules, {})
    assert watched_sources(modules, environment, Console(file=output, width=40)) == ["shop"]
    assert output.getvalue().startswith('connectors of source "crm" are not watched: environment variable "HEADWATER_')
    given = {**environment, "HEADWATER_CRM_DATABASE": "postgresql://reader@db/crm"}
    assert watched_sources(modules, given, Console(file=output)) == ["shop", "crm"]
