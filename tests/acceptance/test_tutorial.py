"""The tutorial works as written: its files are written, its commands run in their order, and their output is shown."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headwater.compose.ports import free_port
from headwater.compose.settings import Ports, StackSettings
from tests.acceptance.conftest import ROOT, only_reads, passes_eventually
from tests.support.processes import SHOWS_STACKS, ended, ends_of
from tests.support.waiting import Latest, eventually

pytestmark = pytest.mark.xdist_group("a wheel")

PAGE = (ROOT / "docs" / "tutorial.md").read_text()
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
RUN = re.compile(r"^headwater run (.*)$", re.MULTILINE)
OUTPUT = {"json", "text"}
INSTALL = """
import sys
from pathlib import Path
from tests.acceptance.conftest import install
install(Path(sys.argv[1]), "all", Path(sys.argv[2]))
"""
NEW_TERMINAL = "a second terminal"
CHOSEN_BY_THE_SERVICE = {"command_id", "position"}
"""Members of answers that differ in each deployment."""
KEPT = ("HEADWATER_CACHE", "HEADWATER_MAVEN")


class Block(NamedTuple):
    """language: `bash` for commands, `python` for a file, `json` or `text` for the output of the commands before it.

    title: the path of the file in the project, or what else the page says of the block.
    """

    language: str
    title: str
    text: str


BLOCKS = [Block(*each) for each in BLOCK.findall(PAGE)]


def test_each_block_of_the_page_is_a_file_commands_or_the_output_of_the_commands_before_it() -> None:
    assert len(BLOCKS) == len(re.findall(r"^```\w", PAGE, re.MULTILINE)) > 20
    for before, block in pairwise(BLOCKS):
        shows = block.language in OUTPUT
        assert block.language in {"bash", "python"} or (shows and before.language == "bash" and block.title), block
        assert block.language != "python" or block.title.endswith(".py"), block


class Terminal:
    """A shell in which blocks run one after another: each begins in the folder and with the variables of the last."""

    def __init__(self, folder: Path, variables: dict[str, str]) -> None:
        self.folder, self.variables = folder, variables

    def run(self, script: str) -> str:
        """What the script prints; it must end well."""
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as state:
            words = ["bash", "-eo", "pipefail", "-c", f"{script}\n{{ pwd; env -0; }} >&{writing}"]
            try:
                done = subprocess.run(
                    words, cwd=self.folder, env=self.variables, pass_fds=[writing],
                    capture_output=True, text=True, timeout=600,
                )  # fmt: skip
            finally:
                os.close(writing)
            folder, _, variables = state.read().decode().partition("\n")
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        self.folder, self.variables = Path(folder), dict(each.split("=", 1) for each in variables.split("\0") if each)
        return done.stdout


def shows(block: Block, printed: str) -> bool:
    """Whether the page shows what a block of commands printed, which is at its end."""
    if block.language == "json":
        return bool(printed) and is_like(json.loads(block.text), last_document(printed))
    expected, lines = block.text.splitlines(), printed.splitlines()
    numbers = {"another time": r"\d[\d.]*s", "other numbers": r"\d[\d,.]*"}.get(block.title.partition(" with ")[2])
    if numbers:
        expected, lines = ([re.sub(numbers, "N", line.strip("= ")) for line in each] for each in (expected, lines))
    return lines[-len(expected) :] == expected


def last_document(printed: str) -> Any:
    """The last of some JSON documents, which curl prints without anything between them."""
    document, rest = None, printed.strip()
    while rest:
        document, end = json.JSONDecoder().raw_decode(rest)
        rest = rest[end:].lstrip()
    return document


def is_like(shown: Any, answer: Any, name: str = "") -> bool:
    """Whether an answer has all members that are shown, with their values, and as many items in each list."""
    if isinstance(shown, dict):
        return isinstance(answer, dict) and all(
            member in answer and is_like(value, answer[member], member) for member, value in shown.items()
        )
    if isinstance(shown, list):
        return isinstance(answer, list) and len(shown) == len(answer) and all(map(is_like, shown, answer))
    return bool(answer) if name in CHOSEN_BY_THE_SERVICE else bool(shown == answer)


@pytest.mark.parametrize(
    ("block", "printed", "expected"),
    [
        (Block("text", "output", "a 1\n"), "x\na 1\n", True),
        (Block("text", "output", "a 1\n"), "a 2\n", False),
        (Block("text", "output, with other numbers", "a 1\n"), "a 2,000\n", True),
        (Block("text", "output, with another time", "5 passed in 0.6s\n"), "= 5 passed in 1.2s =\n", True),
        (Block("text", "output, with another time", "5 passed in 0.6s\n"), "4 passed in 0.6s\n", False),
        (Block("json", "output", '{"a": 1, "position": "0:1"}'), '{"a": 1}{"a": 1, "position": "3:7", "b": 1}', True),
        (Block("json", "output", '{"a": [{"b": 1}]}'), '{"a": [{"b": 2}]}', False),
        (Block("json", "output", '{"a": [1]}'), '{"a": [1, 2]}', False),
    ],
)
def test_shown_output_is_compared_with_what_was_printed(block: Block, printed: str, expected: bool) -> None:
    assert shows(block, printed) is expected


@contextmanager
def running(terminal: Terminal, words: str, settings: dict[str, str], log: Path) -> Iterator[None]:
    """`headwater run` in this terminal, on servers that run already, until it prints what to try."""
    command = ["python", str(Path(__file__).with_name("run_on_servers.py")), *words.split()]
    with log.open("w") as file:
        process = subprocess.Popen(
            ["bash", "-c", 'exec "$@"', "bash", *command],  # it finds the `python` of the terminal
            cwd=terminal.folder,
            env=terminal.variables | settings | SHOWS_STACKS,
            stdout=file,
            stderr=subprocess.STDOUT,
        )

        def is_up() -> bool:
            assert process.poll() is None, log.read_text()
            return "\nTo try in another terminal:\n" in log.read_text()

        try:
            eventually(is_up, Latest(lambda: f"headwater run is up:\n{ends_of(log)}"))
            yield
        finally:
            process.send_signal(signal.SIGINT)
            assert ended(process, log) == 0, log.read_text()


def runs_what_is_there(log: Path) -> bool:
    """Whether `headwater run` has restarted all that was changed: a reader who looks at it waits, too."""
    _, changed, then = log.read_text().rpartition("\nchanged: ")
    return not changed or "projections runs the new code" in then


def installing(script: str, wheel: Path, folder: Path) -> str:
    """The commands of the first step without a download: from the wheel, and the libraries of this environment."""
    words = [sys.executable, "-c", INSTALL, str(wheel), str(folder / ".venv")]
    for shown, replaced in (
        ("python3 -m venv", shlex.join([sys.executable, "-m", "venv", "--without-pip"])),
        ("pip install '/path/to/headwater[all]'", f"PYTHONPATH={shlex.quote(str(ROOT))} {shlex.join(words)}"),
    ):
        assert script.count(shown) == 1, shown
        script = script.replace(shown, replaced)
    return script


def shown_after(terminal: Terminal, script: str, block: Block) -> None:
    """Run commands whose output the page shows; if they only read, until views have what was written before."""

    def is_shown() -> None:
        printed = terminal.run(script)
        assert shows(block, printed), f"{script}\n{printed}\n{block.text}"

    if only_reads(script):
        passes_eventually(is_shown)  # the API is restarted for new views, too
    else:
        is_shown()


@pytest.mark.complete
def test_the_tutorial_works_as_written(stack: StackSettings, wheel: Path, tmp_path: Path) -> None:
    """On servers that run already, and without downloads."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if name in KEPT or not name.startswith(("HEADWATER_", "PYTHON", "PYTEST_", "VIRTUAL_ENV"))
    }
    port, start = str(free_port()), tmp_path / "empty"
    start.mkdir()
    settings = {Ports.variable(name): str(value) for name, value in stack.ports.model_dump().items()}
    settings |= {"HEADWATER_API_PORT": port, "HEADWATER_ENVIRONMENT": f"tutorial_{uuid.uuid4().hex[:8]}"}
    terminal, log = Terminal(start, variables), tmp_path / "run.log"
    with ExitStack() as until_the_end:
        for block, following in zip_longest(BLOCKS, BLOCKS[1:], fillvalue=Block("", "", "")):
            text = block.text.replace("127.0.0.1:18080", f"127.0.0.1:{port}")
            if block.language == "python":
                (terminal.folder / block.title).write_text(text)
            elif run := RUN.match(text):
                until_the_end.enter_context(running(terminal, run[1], settings, log))
            elif block.language == "bash":
                if block == BLOCKS[0]:
                    text = installing(text, wheel, start)
                if block.title == NEW_TERMINAL:
                    terminal = Terminal(start, variables)
                if log.exists():
                    not_there = Latest(lambda: f"headwater run has restarted what was changed:\n{ends_of(log)}")
                    eventually(lambda: runs_what_is_there(log), not_there)
                if following.language in OUTPUT:
                    shown_after(terminal, text, following)
                else:
                    terminal.run(text)
