"""What a user's mistake looks like from the shell: one sentence with the file and the line, and no traceback.

Programs find modules of the current folder, and Headwater and libraries before folders of the same names.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.unit.test_deployed_domains import DOMAIN, EXPIRY, VIEWS

pytestmark = pytest.mark.programs

ROOT: Final = Path(__file__).parents[3]
BIN: Final = Path(sys.executable).parent
PACKAGES: Final = ("api", "commands", "compose", "eventlog", "headwater", "projections", "replay")
HIDES: Final = "raise RuntimeError('the package of Headwater is hidden')\n"
RAISES: Final = "x = 1\n\nraise RuntimeError('no rates\\nfor today')\n"
NO_STORE: Final = VIEWS.format(events="desk.domain").replace("stores=(Postgres(),)", "stores=()")
NO_AGGREGATE: Final = VIEWS.format(events="desk.happened")
HEADWATER: Final = str(BIN / "headwater")
PROGRAMS: Final = {
    "replay": (str(BIN / "replay"), "list"),
    "headwater replay": (HEADWATER, "replay", "list"),
    "headwater handler": (HEADWATER, "handler"),
    "headwater api": (HEADWATER, "api"),
    "headwater projections": (HEADWATER, "projections", "build"),
    "headwater sources": (HEADWATER, "sources", "status"),
    "headwater run": (HEADWATER, "run"),
    "headwater golden": (HEADWATER, "golden", "desk.views"),
    "headwater status": (HEADWATER, "status"),
    "headwater grants": (HEADWATER, "grants"),
    "headwater create": (HEADWATER, "create"),
    "a process that these start": (sys.executable, "-P", "-m", "headwater.commands"),
}
MISTAKES: Final = {
    "raises": (RAISES, "desk/views.py:3: RuntimeError: no rates for today; module"),
    "no_store": (NO_STORE, 'desk/views.py:5: view "orders_placed": it has no store: '),
    "no_aggregate": (NO_AGGREGATE, 'view "orders_placed": reads "order.placed", which no aggregate of this deployment'),
    "process": (EXPIRY, 'process "expiry" handles "order.placed" of the sample "orders", which this'),
}


@pytest.mark.parametrize(
    ("program", "mistake"),
    [
        ("replay", "raises"),
        ("headwater api", "no_store"),
        ("headwater projections", "no_aggregate"),
        ("headwater run", "process"),
        ("a process that these start", "raises"),
        *(
            pytest.param(program, mistake, marks=pytest.mark.complete)
            for program, mistake in (
                ("headwater replay", "raises"),
                ("headwater handler", "process"),
                ("headwater sources", "raises"),
                ("headwater golden", "no_store"),
                ("headwater status", "no_store"),
                ("headwater grants", "raises"),
                ("headwater create", "no_store"),
            )
        ),
    ],
)
def test_a_mistake_is_one_sentence_with_its_place(tmp_path: Path, program: str, mistake: str) -> None:
    """The folder has packages that are called as Headwater, its folders and libraries, and hide none of these."""
    desk, (text, said) = tmp_path / "desk", MISTAKES[mistake]
    for name in (*PACKAGES, "typer", "pydantic", "desk"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("" if name == "desk" else HIDES)
    (desk / "domain.py").write_text(DOMAIN)
    (desk / "happened.py").write_text(
        'from headwater import Event\n\n\nclass Placed(Event, type="order.placed"):\n    order_id: str\n'
    )
    (desk / "views.py").write_text(text)
    left_out = ("HEADWATER_", "PYTHONPATH", "PYTHONSAFEPATH")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    environment |= {"HEADWATER_MODULES": "desk.views", "HEADWATER_STATE": str(tmp_path / "state")}
    ended = subprocess.run(
        PROGRAMS[program], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    assert ended.returncode != 0
    output = ended.stdout + ended.stderr
    assert len(output.splitlines()) == 1, output
    assert said in output
    assert f"{desk}/views.py:" in output
    assert "Traceback" not in output


def test_every_process_that_headwater_starts_searches_the_current_folder_last() -> None:
    """Python would put it first for `python -m`, so that a folder there that is called as a library hides it."""
    sources = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    starting = [line for path in sources for line in path.read_text().splitlines() if "sys.executable, " in line]
    modules = [line for line in starting if '"-m"' in line]
    assert len(modules) > 5
    assert [line.strip() for line in modules if not re.search(r"\*SAFE_PATH, \"-m\"", line)] == []
