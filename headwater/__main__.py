"""`headwater COMMAND`, also `python -m headwater COMMAND`: one command for every part of Headwater.

Each command is the command line of one part. Nothing is imported before it is known which: `headwater api --help` needs
no Spark. This module imports nothing else, because the processes of a rebuild import it again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple


class Part(NamedTuple):
    """A command line. module: has `main`. words: what it calls this command; without any, it has only this one."""

    help: str
    module: str
    words: tuple[str, ...] = ()


PARTS: Final = {
    "new": Part("Write a small project of your own, which runs at once.", "headwater.new"),
    "run": Part(
        "Run servers, handler, projections and API on this machine, until Ctrl-C.", "headwater.compose.cli", ("run",)
    ),
    "up": Part("Start the local servers only.", "headwater.compose.cli", ("up",)),
    "down": Part("Stop the local servers; their data is kept.", "headwater.compose.cli", ("down",)),
    "env": Part(
        "Print the settings of the deployment that runs here, for a shell in another folder.",
        "headwater.eventlog.programs.running_deployment",
    ),
    "stack": Part("Show the local servers: status, logs; and the other commands about them.", "headwater.compose.cli"),
    "api": Part("Run the HTTP API.", "headwater.api.__main__"),
    "keys": Part("Make, list and revoke the keys of the API's callers.", "headwater.api.guard.cli"),
    "handler": Part("Run the handler, which decides commands and runs processes.", "headwater.commands.__main__"),
    "projections": Part(
        "Run the read side, which keeps views up to date, or a part of it.", "headwater.projections.__main__"
    ),
    "replay": Part("Show views, rebuild them from the log, and compare, drop or erase.", "headwater.replay.__main__"),
    "create": Part("Create the topics and tables of a deployment, as an operator who may.", "headwater.replay.create"),
    "grants": Part(
        "Print the rights that each program needs in each server, and no others.", "headwater.replay.grants"
    ),
    "status": Part("Show whether all of a deployment works, and what helps if not.", "headwater.replay.status"),
    "audit": Part(
        "Show what operators did: who, when, from where, with which outcome.", "headwater.eventlog.audit.cli"
    ),
    "person": Part("Print what is known about a person, for their own request.", "headwater.api.known_persons_cli"),
    "erase": Part(
        "Erase a person, by destroying the key of their personal values.", "headwater.projections.erase_person"
    ),
    "master-key": Part("Make and rotate the master key of personal values.", "headwater.eventlog.erasing.master_key"),
    "sources": Part("Register captured databases, and operate them.", "headwater.eventlog.capturing.cli"),
    "golden": Part("Write the missing golden files of your events.", "headwater.commands.testing.__main__"),
}
STARTING: Final = ("headwater.new", "headwater.compose.cli", "headwater.eventlog.programs.running_deployment")
"""Modules of commands that do not work with the deployment that runs in this folder."""
EXTRAS: Final = {
    "headwater.compose.cli": ("stack", "psutil", "fastapi", "pyspark"),
    "headwater.api.__main__": ("api", "fastapi"),
    "headwater.api.guard.cli": ("api", "jwt"),
    "headwater.api.known_persons_cli": ("api", "fastapi", "typer", "rich"),
    "headwater.commands.__main__": ("handler", "rocksdict"),
    "headwater.projections.__main__": ("projections", "pyspark"),
    "headwater.replay.__main__": ("projections", "pyspark"),
    "headwater.replay.status": ("projections", "pyspark"),
    "headwater.eventlog.audit.cli": ("api", "typer", "rich"),
    "headwater.projections.erase_person": ("personal", "cryptography", "psycopg_pool", "typer", "rich"),
    "headwater.eventlog.erasing.master_key": ("personal", "cryptography", "psycopg_pool", "typer", "rich"),
    "headwater.replay.create": ("projections", "pyspark"),
    "headwater.replay.grants": ("projections", "pyspark"),
    "headwater.eventlog.capturing.cli": ("sources", "httpx"),
    "headwater.commands.testing.__main__": ("testing", "pytest"),
}
"""The extra that each module needs, and libraries by which to know that it is installed."""


def main() -> int:
    """Run the command that the first argument names; returns its exit code."""
    arguments = sys.argv[1:]
    part = PARTS.get(arguments[0]) if arguments else None
    if part is None:
        return _show_usage(arguments)
    from importlib import import_module  # noqa: PLC0415 - as the parts themselves

    from headwater.eventlog.programs.command_line import refuse_missing  # noqa: PLC0415 - likewise
    from headwater.eventlog.programs.running_deployment import use_running_deployment  # noqa: PLC0415

    if extra := EXTRAS.get(part.module):
        refuse_missing(f"headwater {arguments[0]}", *extra)
    if part.module not in STARTING:
        use_running_deployment(os.environ)
    program = "headwater" if part.words else f"headwater {arguments[0]}"
    sys.argv[:] = [program, *part.words, *arguments[1:]]
    return import_module(part.module).main() or 0


def _show_usage(arguments: Sequence[str]) -> int:
    """Print the commands, or the version; returns the exit code: 0 if the arguments ask for that, else 2."""
    import difflib  # noqa: PLC0415 - as above
    from argparse import ArgumentParser, RawDescriptionHelpFormatter  # noqa: PLC0415
    from importlib.metadata import version  # noqa: PLC0415

    width = max(map(len, PARTS))
    parser = ArgumentParser(
        "headwater",
        usage="headwater COMMAND …",
        description="Event sourcing and CQRS on one Kafka log.",
        epilog="\n".join(["commands:", *(f"  {name:{width}}  {part.help}" for name, part in PARTS.items())])
        + "\n\nheadwater COMMAND --help says more about each, headwater --version the version.",
        formatter_class=RawDescriptionHelpFormatter,
    )
    if not arguments:
        parser.print_help()
        return 2
    word = arguments[0]
    if word in {"--help", "-h"}:
        parser.print_help()
        return 0
    if word == "--version":
        print(f"headwater {version('headwater')}")
        return 0
    close = difflib.get_close_matches(word, PARTS, n=1)
    hint = f'did you mean "{close[0]}"?' if close else f"use one of {', '.join(PARTS)}"
    print(f'error: there is no command "{word}": {hint}', file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
