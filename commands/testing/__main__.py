"""`headwater golden bank.domain`: writes the missing golden files of the events in these modules."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from headwater.commands.declaring.golden_files import GoldenFiles
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import DeclarationError
from headwater.commands.testing.golden import add_missing
from headwater.eventlog.errors import EventLogError
from headwater.eventlog.programs.command_line import called_as


def main(words: Sequence[str] | None = None) -> int:
    """Returns the exit code: 1 if a file must be written by hand, 2 if a module cannot be imported."""
    parser = ArgumentParser(
        (called_as() if words is None else None) or "headwater golden",
        description="Write the missing golden files, one per event version. Commit them, and never change them.",
    )
    parser.add_argument("modules", nargs="+", metavar="MODULE", help="a module with aggregates, such as bank.domain")
    parser.add_argument(
        "--golden",
        type=Path,
        metavar="FOLDER",
        help="folder of the golden files; default: golden/ beside the module that declares the event",
    )
    arguments = parser.parse_args(words)
    try:
        registry = CommandRegistry.load(arguments.modules)
    except (EventLogError, DeclarationError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    missing = 0
    for aggregate in registry.aggregates.values():
        for path, version, made in add_missing(aggregate, GoldenFiles(arguments.golden)):
            missing += not made
            print(
                f"{path}: {'written' if made else f'write it by hand, with the data of an event of version {version}'}"
            )
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
