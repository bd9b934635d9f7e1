"""What a user's mistake looks like from the shell: one sentence with the file and the line, and no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.test_deployed_domains import DOMAIN, EXPIRY, VIEWS

pytestmark = pytest.mark.programs

RAISES = "x = 1\n\nraise RuntimeError('no rates\\nfor today')\n"
NO_STORE = VIEWS.format(events="desk.domain").replace("stores=(Postgres(),)", "stores=()")
NO_AGGREGATE = VIEWS.format(events="desk.happened")
PROGRAMS = {
    "replay": ("-m", "replay", "list"),
    "commands": ("-m", "commands"),
    "projections": ("-m", "projections", "build"),
    "api": ("-m", "api"),
    "compose": ("-m", "compose", "run"),
    "testing": ("-m", "commands.testing"),
    "status": ("-m", "headwater", "status"),
    "grants": ("-m", "headwater", "grants"),
    "create": ("-m", "headwater", "create"),
}
MISTAKES = {
    "raises": (RAISES, "desk/views.py:3: RuntimeError: no rates for today; module"),
    "no_store": (NO_STORE, 'desk/views.py:5: view "orders_placed": it has no store: '),
    "no_aggregate": (NO_AGGREGATE, 'view "orders_placed": reads "order.placed", which no aggregate of this deployment'),
    "process": (EXPIRY, 'process "expiry" handles "order.placed" of the sample "orders", which this'),
}


@pytest.mark.parametrize(
    ("program", "mistake"),
    [
        ("replay", "raises"),
        ("commands", "process"),
        ("projections", "no_aggregate"),
        ("api", "no_store"),
        ("compose", "process"),
        ("testing", "no_store"),
        ("status", "no_store"),
        ("grants", "raises"),
        ("create", "no_store"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_place(tmp_path: Path, program: str, mistake: str) -> None:
    desk, (text, said) = tmp_path / "desk", MISTAKES[mistake]
    desk.mkdir()
    (desk / "__init__.py").write_text("")
    (desk / "domain.py").write_text(DOMAIN)
    (desk / "happened.py").write_text(
        'from headwater import Event\n\n\nclass Placed(Event, type="order.placed"):\n    order_id: str\n'
    )
    (desk / "views.py").write_text(text)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADWATER_")}
    environment |= {
        "HEADWATER_MODULES": "desk.views",
        "HEADWATER_STATE": str(tmp_path / "state"),
        "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}",
    }
    words = [*PROGRAMS[program], *(["desk.views"] if program == "testing" else [])]
    ended = subprocess.run(
        [sys.executable, *words],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode != 0
    output = ended.stdout + ended.stderr
    assert len(output.splitlines()) == 1, output
    assert said in output
    assert f"{desk}/views.py:" in output
    assert "Traceback" not in output
