"""docs/captured-databases.md and its reference: the samples are sources and views, the commands exist, and the tables
have every type."""

from __future__ import annotations

import re

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from headwater import TableView
from headwater.eventlog.capturing import Source
from headwater.eventlog.capturing.cli import app
from headwater.eventlog.capturing.mysql import types as mysql_types
from headwater.eventlog.capturing.postgres.types import FITTING
from tests.support.pages import blocks, first_cells, names_of, read_page, section

PAGE = read_page("captured-databases.md")
REFERENCE = read_page("captured-reference.md")


def test_the_sample_declares_a_source() -> None:
    source = names_of(blocks("python", PAGE)[0])["crm"]
    assert isinstance(source, Source)
    assert source.hashes
    assert f"`HEADWATER_{source.name.upper()}_SALT`" in PAGE
    assert source.salt == "HEADWATER_CRM_SALT"


@pytest.mark.parametrize(
    ("name", "topics"),
    [
        ("customer_360", ("events", "cdc.shop.public.customers")),
        ("ordered", ("events", "cdc.shop.public.order_lines")),
    ],
)
def test_the_sample_of_a_view_is_one(name: str, topics: tuple[str, ...]) -> None:
    (sample,) = (sample for sample in blocks("python", PAGE) if f"{name} = " in sample)
    view = names_of(sample)[name]
    assert isinstance(view, TableView)
    assert view.topics == topics


def test_the_reference_has_each_command_with_its_options() -> None:
    commands = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    rows = [cell.strip("`") for cell in first_cells(section(REFERENCE, "Commands")) if cell.startswith("`")]
    documented = {row.split()[0]: set(re.findall(r"--[a-z-]+", row)) for row in rows if "sources" not in row}
    assert documented.keys() == commands
    assert set(re.findall(r"headwater sources ([a-z]+)", PAGE + REFERENCE)) <= commands
    helped = CliRunner().invoke(app, ["--help"]).output
    for command, options in documented.items():
        assert command in helped
        parameters = get_command(app).commands[command].params  # type: ignore[attr-defined]
        assert options == {option for parameter in parameters for option in parameter.opts if option.startswith("--")}


def test_the_reference_has_every_type_of_postgresql_that_can_be_captured() -> None:
    table = REFERENCE.partition("### PostgreSQL types")[2].partition("\n#")[0]
    spelled = {
        "int2": "smallint",
        "int4": "integer",
        "int8": "bigint",
        "float4": "real",
        "float8": "double precision",
        "bool": "boolean",
        "bpchar": "char",
        "oid": "bigint",
        "macaddr8": "macaddr",
        "tsvector": "text",
    }
    for name in FITTING:
        shown = "ranges" if name.endswith("range") else f"`{spelled.get(name, name)}`"
        assert shown in table, name


def test_the_sample_of_mariadb_declares_a_source() -> None:
    (sample,) = blocks("python", section(PAGE, "Set up MariaDB and MySQL"))
    assert names_of(sample)["erp"].engine == "mariadb"


def test_the_reference_has_every_type_of_mariadb_that_can_be_captured() -> None:
    table = REFERENCE.partition("### MariaDB and MySQL types")[2].partition("\n#")[0]
    for name in (*mysql_types.FITTING, *mysql_types.SINGLE):
        assert f"`{name}`" in table or f"`{name}(n)`" in table, name
