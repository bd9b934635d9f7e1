"""docs/testing.md: its samples are tests that pass, on the account of a new project and the views of the page."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import ROOT, blocks, read_page

pytestmark = pytest.mark.programs

TEXT = read_page("testing.md")
WITH_SPARK = "late_rows_of"
"""In the sample that needs Spark: it is run where Spark is running, in test_stream_testing.py."""
FEW = """
from hypothesis import settings

settings.register_profile("few", max_examples=5, database=None)
settings.load_profile("few")
"""


def without_spark() -> list[str]:
    return [block for block in blocks("python", TEXT) if WITH_SPARK not in block]


def run(package: Path, *words: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "HEADWATER_MODULES"}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    ran = subprocess.run(
        [sys.executable, *words], cwd=package, env=environment, capture_output=True, text=True, timeout=600
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    (views,) = blocks('python title="bank/views.py"', TEXT)
    (tmp_path / "bank").mkdir()
    (tmp_path / "bank" / "__init__.py").write_text("")
    (tmp_path / "bank" / "domain.py").write_text(
        (ROOT / "headwater" / "project" / "bank" / "domain.py.txt").read_text()
    )
    (tmp_path / "bank" / "views.py").write_text(views)
    (tmp_path / "conftest.py").write_text(FEW)
    (tmp_path / "test_bank.py").write_text("\n".join(without_spark()))
    return tmp_path


def test_the_samples_pass_once_the_golden_files_are_written(bank: Path) -> None:
    ((python, *words),) = [shlex.split(line) for block in blocks("bash", TEXT) for line in block.splitlines()]
    assert python == "python"
    run(bank, *words)
    assert (bank / "bank" / "golden" / "account.deposited" / "1.json").exists()
    told = run(bank, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rA", "test_bank.py")
    passed = set(re.findall(r"^PASSED test_bank\.py::(\w+)", told, re.MULTILINE))
    shown = set(re.findall(r"^def (test_\w+)|^(Test\w+)", "\n".join(without_spark()), re.MULTILINE))
    assert passed == {function or contract for function, contract in shown}


def test_a_failure_reads_as_shown(bank: Path) -> None:
    fails = """
from bank.domain import Deposit, Deposited, Opened, account
from headwater.testing import given

opened = given(account, Opened(account_id="A", owner="Ada"))
try:
    opened.when(Deposit(account_id="A", cents=500)).then(Deposited(account_id="A", owner="Ada", cents=50))
except AssertionError as error:
    print(error)
"""
    assert run(bank, "-c", fails) == blocks("text", TEXT)[0]


def test_the_test_on_real_servers_is_what_a_new_project_has() -> None:
    """It is run there, in tests/acceptance."""
    written = (ROOT / "headwater" / "project" / "bank" / "test_running.py.txt").read_text()
    plugin, shown = blocks("py", TEXT)
    assert shown in written and plugin in (ROOT / "headwater" / "project" / "conftest.py.txt").read_text()


def test_every_word_of_the_kit_is_on_the_page() -> None:
    import headwater.testing
    from headwater.commands.testing.instances import Reacted
    from headwater.commands.testing.streams import Decided
    from headwater.compose.testing.deployment import RunningDeployment
    from headwater.testing import plugin

    words = set(headwater.testing.__all__)
    words |= {name for name in vars(RunningDeployment) if not name.startswith("_")} - {"servers"}
    words |= {name for name in vars(plugin) if name.startswith("headwater_") or name == "deployment"}
    words |= {name for kind in (Decided, Reacted) for name in vars(kind) if name.startswith("then")}
    assert {word for word in words if not re.search(rf"\b{word}\b", TEXT)} == set()
