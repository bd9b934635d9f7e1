"""docs/troubleshooting.md: its commands exist with their options, and its messages and types of problems, too."""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import Any

import typer

from headwater import __main__ as headwater
from headwater.compose import cli as stack
from headwater.eventlog.capturing import cli as sources
from headwater.replay import cli as replay
from tests.support.pages import ROOT, blocks, read_page

PAGE = read_page("troubleshooting.md")
PACKAGES = ("eventlog", "commands", "projections", "replay", "api", "compose")
CODE = re.compile(r"`([^`]+)`")
PROGRAMS = ("replay ", "headwater ")
STATES = {"behind", "stalled", "away", "lost", "not built", "paused"}


def commands() -> set[tuple[str, ...]]:
    """Each command on the page, as its words."""
    (block,) = blocks("bash", PAGE)
    inline = CODE.findall(PAGE.replace(f"```bash\n{block}```", ""))
    return {tuple(line.split()) for line in [*block.splitlines(), *inline] if line.startswith(PROGRAMS)}


def symptoms() -> set[str]:
    """The code in the first cells: messages, types of problems and states."""
    cells = re.findall(r"^\| (?!you see|---)(.*?) \|", PAGE, re.MULTILINE)
    return {code for cell in cells for code in CODE.findall(cell)}


def options_of(command: Any) -> set[str]:
    return {option for parameter in command.params for option in [*parameter.opts, *parameter.secondary_opts]}


@cache
def texts() -> str:
    """All text in the code that a person may see, without what is filled in: no documentation."""
    found = list[str]()
    for file in (file for package in PACKAGES for file in (ROOT / package).rglob("*.py")):
        nodes = list(ast.walk(ast.parse(file.read_text())))
        documentation = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        constants = (node for node in nodes if isinstance(node, ast.Constant) and id(node) not in documentation)
        found += [node.value for node in constants if isinstance(node.value, str)]
    return "\n".join(found)


def test_the_commands_exist_with_their_options() -> None:
    apps = {
        ("replay",): replay.app_of(),
        ("headwater", "stack"): stack.app,
        ("headwater", "sources"): sources.app,
    }
    groups = {start: typer.main.get_command(app) for start, app in apps.items()}
    assert len(commands()) > 15
    for words in commands():
        start = next((start for start in groups if words[: len(start)] == start), None)
        if start is None:
            assert words[1] in headwater.PARTS, words
            continue
        command, rest = groups[start], list(words[len(start) :])
        while rest and hasattr(command, "commands"):
            command = command.commands[rest.pop(0)]
        assert {word for word in rest if word.startswith("--")} <= options_of(command), words


def test_the_messages_and_types_are_in_the_code() -> None:
    messages = {symptom for symptom in symptoms() - STATES if not symptom.startswith(PROGRAMS)}
    assert len(messages) > 30
    assert [message for message in sorted(messages) if message.partition('"')[0] not in texts()] == []
