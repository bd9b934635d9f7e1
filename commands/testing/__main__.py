"""`python -m commands.testing bank.domain`: writes the golden files that the events of these modules lack."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from commands.declaring.registry import CommandRegistry
from commands.testing.golden import GoldenFiles, add_missing
from eventlog.errors import ModuleBroken, UnknownModule


def main(words: Sequence[str] | None = None) -> int:
    """Returns 1 if a file is left to be written by hand, and 2 if a module cannot be imported."""
    parser = ArgumentParser(
        "python -m commands.testing",
        description="Write a golden file for every version of every event that has none: commit them, and change none.",
    )
    parser.add_argument("modules", nargs="+", metavar="MODULE", help="with aggregates, such as bank.domain")
    parser.add_argument(
        "--golden", type=Path, metavar="FOLDER", help="default: golden/ beside the module that declares the event"
    )
    asked = parser.parse_args(words)
    try:
        registry = CommandRegistry.load(asked.modules)
    except (ModuleBroken, UnknownModule) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    left = 0
    for aggregate in registry.aggregates.values():
        for path, version, made in add_missing(aggregate, GoldenFiles(asked.golden)):
            left += not made
            print(f"{path}: {'made' if made else f'write it by hand, with data as version {version} recorded it'}")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
