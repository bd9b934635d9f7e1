"""docs/captured-databases.md: its sample is a source, its commands exist, and its table has every type."""

from __future__ import annotations

import re

from typer.testing import CliRunner

from headwater import TableView
from headwater.eventlog.capturing import Source
from headwater.eventlog.capturing.cli import app
from headwater.eventlog.capturing.mysql import types as mysql_types
from headwater.eventlog.capturing.postgres.types import FITTING
from tests.support.pages import blocks, names_of, read_page

PAGE = read_page("captured-databases.md")
MARIADB_PAGE = read_page("captured-mariadb.md")


def test_the_sample_declares_a_source() -> None:
    source = names_of(blocks("python", PAGE)[0])["crm"]
    assert isinstance(source, Source)
    assert source.hashes
    assert f"`HEADWATER_{source.name.upper()}_SALT`" in PAGE
    assert source.salt == "HEADWATER_CRM_SALT"


def test_the_sample_of_a_view_is_one() -> None:
    (sample,) = (each for each in blocks("python", PAGE) if "customer_360 = " in each)
    view = names_of(sample)["customer_360"]
    assert isinstance(view, TableView)
    assert view.topics == ("events", "cdc.shop.public.customers")


def test_its_commands_are_those_of_the_program() -> None:
    known = {each.name or each.callback.__name__ for each in app.registered_commands if each.callback}
    lines = re.findall(r"headwater sources ([a-z |]+)", PAGE)
    shown = {word for line in lines for word in re.findall(r"[a-z]+", line)}
    assert known <= shown
    assert set(re.findall(r"^headwater sources ([a-z]+)", PAGE, re.MULTILINE)) <= known
    helped = CliRunner().invoke(app, ["--help"]).output
    assert all(command in helped for command in known)


def test_its_table_names_every_type_that_can_be_captured() -> None:
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
        assert shown in PAGE, name


def test_the_sample_of_mariadb_is_a_source_and_its_table_names_every_type() -> None:
    (sample,) = blocks("python", MARIADB_PAGE)
    assert isinstance(names_of(sample)["crm"], Source)
    table = MARIADB_PAGE.partition("## What a record becomes")[2]
    for name in (*mysql_types.FITTING, *mysql_types.SINGLE):
        assert f"`{name}`" in table or f"`{name}(n)`" in table, name
