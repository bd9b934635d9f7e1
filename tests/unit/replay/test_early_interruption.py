"""Ctrl-C while a command imports what it needs: it ends without a word, since there is nothing to undo."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

INTERRUPTED = """
import os, signal, sys
from importlib.abc import MetaPathFinder
from headwater.replay.__main__ import main

class Interrupting(MetaPathFinder):
    def find_spec(self, name, *_):
        if name == "headwater.replay.cli":
            os.killpg(0, signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
sys.argv[:] = ["replay", "rebuild", "listings"]
main()
"""


@pytest.mark.programs
def test_an_interruption_of_the_imports_ends_a_command_silently() -> None:
    words = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, start_new_session=True)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
