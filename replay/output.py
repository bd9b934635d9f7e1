"""How the command shows what it found: tables for people, tab-separated lines for pipes, one line of JSON for programs.

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

from replay.errors import NoTerminal

AsJson = Annotated[bool, typer.Option("--json", help="Print one line of JSON instead.")]

Cell = str | int | float | None
CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
"""Characters that would end a line, or that a terminal would obey."""


def output() -> Console:
    """Standard output as it is now; not a terminal: nothing is folded, cut or coloured."""
    return Console(highlight=False, markup=False, emoji=False)


def errors() -> Console:
    """Standard error as it is now."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def say(text: str) -> None:
    """One line on standard output, as it stands: a command in it can be copied, however narrow the terminal is."""
    output().print(text, soft_wrap=True)


def complain(text: str) -> None:
    """One line on standard error, as it stands."""
    errors().print(f"replay: {text}", style="red", soft_wrap=True)


def fail(error: Exception, code: int) -> None:
    """Say what went wrong, in one line on standard error, and end with this exit code."""
    complain(str(error))
    raise typer.Exit(code)


def print_json(document: Any) -> None:
    """One line on standard output."""
    print(json.dumps(document), flush=True)


def show_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], plain_only: Sequence[str] = ()) -> None:
    """Print rows under the names of their columns.

    On a terminal a table that fits its width, and elsewhere a line per row, its cells separated by tabs, of any length.
    plain_only: columns that the terminal has no room for.
    """
    if not output().is_terminal:
        for line in (columns, *rows):
            print("\t".join(one_line(each) for each in line))
        return
    shown = [number for number, name in enumerate(columns) if name not in plain_only]
    output().print(
        terminal_table([columns[each] for each in shown], [[row[each] for each in shown] for row in rows], rows == [])
    )


def show_notes(lines: Sequence[str]) -> None:
    """Sentences below a table, on a terminal only: what they say stands in columns elsewhere."""
    if output().is_terminal:
        for line in lines:
            say(one_line(line))


def terminal_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], empty: bool = False) -> RenderableType:
    """A table without lines around its cells; a cell that is too long goes on below."""
    if empty:
        return Text("none")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, name in enumerate(columns):
        numeric = all(isinstance(row[number], int | float | None) for row in rows)
        justify: Literal["left", "right"] = "right" if numeric else "left"
        table.add_column(Text(name), justify=justify, overflow="fold", no_wrap=numeric)
    for row in rows:
        table.add_row(*(Text(one_line(each, digits=",")) for each in row))
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


def confirm(question: str, yes: bool) -> None:
    """Return if the user agrees; `yes`: they did so beforehand.

    Ends with exit code 1 when they do not, and raises NoTerminal where nobody sits at the terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise NoTerminal
    # typer's prompt would write to standard output, which may be on its way into a program
    errors().print(f"{question} [y/N] ", end="")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        complain("nothing was dropped")
        raise typer.Exit(1)


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
