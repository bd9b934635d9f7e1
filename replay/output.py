"""The output of the command: tables for people, tab-separated lines for pipes, one line of JSON for programs.

Results go to standard output; progress, questions and errors to standard error.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from headwater.eventlog.audit.commands import Declined
from headwater.eventlog.programs.command_line import called_as
from headwater.replay.errors import NoTerminal

AsJson = Annotated[bool, typer.Option("--json", help="Print one line of JSON.")]

Cell = str | int | float | None
CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
"""Control characters, which would end a line or change the terminal."""


def output() -> Console:
    """Standard output at the moment; if it is not a terminal, nothing is wrapped, cut or coloured."""
    return Console(highlight=False, markup=False, emoji=False)


def errors() -> Console:
    """Standard error at the moment."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def say(text: str) -> None:
    """Print one line on standard output without wrapping, so that a command in it can be copied."""
    output().print(text, soft_wrap=True)


def complain(text: str) -> None:
    """Print one line on standard error without wrapping."""
    name = called_as() or ""
    program = name if name.startswith("headwater ") else "replay"  # `headwater create` and others complain here, too
    errors().print(f"{program}: {text}", style="red", soft_wrap=True)


def fail(error: Exception, code: int) -> None:
    """Print the error in one line on standard error and exit with this code."""
    complain(str(error))
    raise typer.Exit(code)


def print_json(document: Any) -> None:
    """Print one line on standard output."""
    print(json.dumps(document), flush=True)


def show_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], plain_only: Sequence[str] = ()) -> None:
    """Print rows under the names of their columns.

    On a terminal a table that fits its width; elsewhere one line per row, with cells separated by tabs. plain_only:
    columns for which a terminal has no space.
    """
    if not output().is_terminal:
        for line in (columns, *rows):
            print("\t".join(one_line(cell) for cell in line))
        return
    shown = [number for number, name in enumerate(columns) if name not in plain_only]
    output().print(
        terminal_table(
            [columns[index] for index in shown], [[row[index] for index in shown] for row in rows], rows == []
        )
    )


def show_notes(lines: Sequence[str]) -> None:
    """Print sentences below a table, only on a terminal; other output has this information in columns."""
    if output().is_terminal:
        for line in lines:
            say(one_line(line))


def terminal_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], empty: bool = False) -> RenderableType:
    """A table without borders; long cells are wrapped."""
    if empty:
        return Text("none")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, name in enumerate(columns):
        numeric = all(isinstance(row[number], int | float | None) for row in rows)
        justify: Literal["left", "right"] = "right" if numeric else "left"
        table.add_column(Text(name), justify=justify, overflow="fold", no_wrap=numeric)
    for row in rows:
        table.add_row(*(Text(one_line(cell, digits=",")) for cell in row))
    return table


def one_line(cell: Cell, digits: str = "") -> str:
    """A cell as text without control characters. digits: "," groups the digits of a number."""
    match cell:
        case None:
            return "-"
        case str():
            return CONTROL.sub(" ", cell)
        case int():
            return format(cell, digits)
        case float():
            return format(cell, f"{digits}.1f")


def confirm(question: str, dropped: str = "dropped") -> None:
    """Return if the user confirms; exits with code 1 if they do not, and raises NoTerminal if there is no terminal.

    dropped: what is not done then, as in "nothing was dropped".
    """
    if not sys.stdin.isatty():
        raise NoTerminal(dropped)
    # typer's prompt would write to standard output, which may be piped into a program
    errors().print(f"{question} [y/N] ", end="")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        complain(f"nothing was {dropped}")
        raise Declined


def size_text(size_bytes: int | None) -> str | None:
    """A size for people: 17 kB, 1.2 GB."""
    if size_bytes is None:
        return None
    size = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if size >= 10 or unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
