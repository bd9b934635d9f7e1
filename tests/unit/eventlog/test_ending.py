"""A program that was asked to end, and does not."""

from __future__ import annotations

import subprocess
import sys

import pytest

HANGING = """
import threading
from headwater.eventlog.programs.stopping import end_within

def never_ends():
    threading.Event().wait()

end_within({seconds})
if {hangs}:
    never_ends()
print("ended by itself")
"""


LOCKED = """
import logging
import threading
from headwater.eventlog.programs import stopping

stopping.LATE_S = 0.1
handler = logging.StreamHandler()
logging.getLogger().addHandler(handler)

def never_ends():
    handler.acquire()
    threading.Event().wait()

stopping.end_within(0.1)
never_ends()
"""


@pytest.mark.programs
def test_one_whose_log_is_locked_is_ended_as_well() -> None:
    ran = subprocess.run([sys.executable, "-c", LOCKED], capture_output=True, text=True, check=False, timeout=60)
    assert (ran.returncode, "in never_ends" in ran.stderr) == (1, True), ran.stderr


@pytest.mark.programs
@pytest.mark.parametrize(
    ("hangs", "seconds", "code", "printed"), [(True, 0.1, 1, ""), (False, 600, 0, "ended by itself\n")]
)
def test_it_is_ended_and_its_log_says_where_it_was(hangs: bool, seconds: float, code: int, printed: str) -> None:
    script = HANGING.format(hangs=hangs, seconds=seconds)
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (ran.returncode, ran.stdout) == (code, printed)
    assert ("it has not ended 0.1 s after" in ran.stderr) == ("in never_ends" in ran.stderr) == hangs
