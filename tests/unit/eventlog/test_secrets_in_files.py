"""A secret may be in a file instead of a variable: `<VARIABLE>_FILE` names it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import pytest

from headwater.compose.services import service_specs
from headwater.compose.settings import StackSettings
from headwater.eventlog.capturing import Captured, Hashed, Source
from headwater.eventlog.capturing.settings import SourceSettings
from headwater.eventlog.errors import SettingError
from headwater.eventlog.security import KafkaSecurity
from headwater.projections.settings import StoreSettings, StoreVariables

PAGE = (Path(__file__).parents[3] / "docs" / "settings.md").read_text()
ADDRESS = "postgresql://headwater:hush@db:5432/headwater"


class Person(Captured, table="public.people", key="id"):
    id: int
    name: Annotated[str, Hashed()]


crm = Source(name="crm", tables=(Person,))


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(f"{ADDRESS}\n")
    return path


def test_addresses_are_read_from_files(kept: Path) -> None:
    assert StoreSettings.from_environment(
        {"HEADWATER_POSTGRES_FILE": str(kept), "HEADWATER_MODULES": "listings"}
    ).postgres == (ADDRESS)


def test_an_empty_variable_is_not_set(kept: Path) -> None:
    """A compose file may set both for everybody, one of them to nothing."""
    given = {"HEADWATER_POSTGRES": "", "HEADWATER_POSTGRES_FILE": str(kept), "HEADWATER_VALKEY_FILE": ""}
    found = StoreVariables.read(given)
    assert (found.postgres, found.valkey) == (ADDRESS, "valkey://127.0.0.1:16379")


def test_the_password_of_kafka_is_read_from_a_file(kept: Path) -> None:
    kept.write_text("hush\r\n")
    given = {"HEADWATER_KAFKA_SECURITY": "SASL_PLAINTEXT", "HEADWATER_KAFKA_USER": "ada"}
    found = KafkaSecurity.from_environment({**given, "HEADWATER_KAFKA_PASSWORD_FILE": str(kept)})
    assert found.password == "hush"  # noqa: S105 - of this test
    with pytest.raises(SettingError, match="HEADWATER_KAFKA_PASSWORD_FILE"):
        KafkaSecurity.from_environment({"HEADWATER_KAFKA_PASSWORD_FILE": str(kept)})  # of no use without encryption


def test_secrets_of_a_source_are_read_from_files(kept: Path, tmp_path: Path) -> None:
    (tmp_path / "salt").write_text("s4lt\n")
    given = {
        "HEADWATER_MODULES": "listings",
        "HEADWATER_CRM_DATABASE_FILE": str(kept),
        "HEADWATER_CRM_SALT_FILE": str(tmp_path / "salt"),
    }
    found = SourceSettings.from_environment(crm, given)
    assert (found.salt, getattr(found.database, "password", "")) == ("s4lt", "hush")


@pytest.mark.parametrize(
    ("content", "also", "said"),
    [
        ("", {}, "this one is empty"),
        (None, {}, "No such file"),
        (b"\xff\xfe", {}, "can't decode"),
        ("not an address\n", {}, 'HEADWATER_POSTGRES" is "…"'),
        (ADDRESS, {"HEADWATER_POSTGRES": ADDRESS}, "only one of them can be used"),
    ],
)
def test_a_wrong_file_is_named_and_its_content_is_not_shown(
    kept: Path, content: str | bytes | None, also: dict[str, str], said: str
) -> None:
    kept.unlink()
    if content is not None:
        kept.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(SettingError, match=re.escape(said)) as wrong:
        StoreVariables.read({"HEADWATER_POSTGRES_FILE": str(kept), **also})
    assert "hush" not in str(wrong.value) and "not an" not in str(wrong.value)


@pytest.mark.parametrize("path", ["\x00", "x" * 10_000, "/proc/headwater", "/"])
def test_a_path_that_is_none_is_an_error_of_its_variable(path: str) -> None:
    with pytest.raises(SettingError, match="HEADWATER_VALKEY_FILE"):
        StoreVariables.read({"HEADWATER_VALKEY_FILE": path})


def test_the_local_stack_uses_its_own_servers_whatever_is_in_files(kept: Path, tmp_path: Path) -> None:
    for spec in service_specs(StackSettings(tmp_path), 18080, {"HEADWATER_MODULES": "listings"}):
        given = {"HEADWATER_POSTGRES_FILE": str(kept), **spec.env}
        assert StoreSettings.from_environment(given).postgres == StackSettings(tmp_path).endpoints.postgres
