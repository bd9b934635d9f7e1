"""DOMAINS of `make run` and `make demo`: which samples run, and what a wrong one is told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.compose.domains import main, read_deployed, read_domains
from headwater.compose.errors import DomainsError
from headwater.compose.samples.sample import to_try
from headwater.eventlog.programs.modules import shipped_domains
from tests.samples.checked import checked_sample

pytestmark = pytest.mark.programs

ROOT = Path(__file__).parents[3]
ALL = "buses, checkouts, listings, orders, payments, sales, saved_searches, sensors, shop, shop_floor, ski_lifts, web"


@pytest.mark.parametrize(
    ("text", "domains"),
    [
        ("", ()),
        (" ", ()),
        ("all", shipped_domains()),
        ("orders", ("orders",)),
        ("orders, listings,orders", ("orders", "listings")),
    ],
)
def test_domains_are_read(text: str, domains: tuple[str, ...]) -> None:
    assert read_domains(text) == domains
    assert main([text]) == 0


@pytest.mark.parametrize("text", ["order", "orders,x", "all,orders", "bank.domain", "headwater.samples.orders.domain"])
def test_a_wrong_one_is_told_which_there_are(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DomainsError, match=f"DOMAINS is '{text}'; set it to all, or to some of {ALL}"):
        read_domains(text)
    assert main([text]) == 1
    assert capsys.readouterr().err.startswith(f"error: DOMAINS is '{text}'; ")


def test_what_runs_is_named_in_one_of_two_ways() -> None:
    assert read_deployed("", {}) == ("listings",)
    assert read_deployed("all", {"HEADWATER_MODULES": ""}) == shipped_domains()
    assert read_deployed("", {"HEADWATER_MODULES": "bank.views,orders"}) == ("bank.views", "orders")
    with pytest.raises(DomainsError, match=r"set it to nothing, and set HEADWATER_MODULES to 'bank\.views,orders'"):
        read_deployed("orders", {"HEADWATER_MODULES": "bank.views"})


@pytest.mark.parametrize("target", ["run", "demo"])
def test_make_refuses_a_wrong_one_before_anything_else(target: str) -> None:
    def make(*words: str) -> subprocess.CompletedProcess[str]:
        # not as a part of the make that runs the tests, which would make it say so
        alone = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"}
        return subprocess.run(
            ["make", target, *words], cwd=ROOT, env=alone, capture_output=True, text=True, timeout=600
        )

    refused = make("DOMAINS=order")
    assert refused.returncode != 0
    assert f"set it to all, or to some of {ALL}" in refused.stderr
    assert refused.stdout == ""
    shown = make("-n", "DOMAINS=orders, listings")
    program = {"run": "headwater.compose run", "demo": "tests.demo"}[target]
    assert shown.stdout.splitlines()[-1].endswith(f"-m {program} --domains 'orders, listings'"), shown.stderr


def test_the_check_needs_nothing_that_is_installed() -> None:
    script = "import sys; sys.path.insert(0, '.'); from headwater.compose.domains import main; sys.exit(main(['all']))"
    subprocess.run([sys.executable, "-I", "-S", "-c", script], cwd=ROOT, timeout=600, check=True)


@pytest.mark.parametrize("domain", shipped_domains())
def test_there_is_something_to_show_of_every_shipped_domain(domain: str) -> None:
    sample = checked_sample(domain)
    assert sample.views
    assert sample.number > 0
    assert to_try(domain)
