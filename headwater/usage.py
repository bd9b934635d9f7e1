"""What `headwater` prints if it is asked for help, or called with a command that there is not."""

from __future__ import annotations

import difflib
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from importlib.metadata import version


def show(arguments: Sequence[str], helps: Mapping[str, str]) -> int:
    """Print the commands, or the version; returns the exit code: 0 if the arguments ask for that, else 2.

    helps: by command, what it is for, in one line.
    """
    width = max(map(len, helps))
    parser = ArgumentParser(
        "headwater",
        usage="headwater COMMAND …",
        description="Event sourcing and CQRS on one Kafka log.",
        epilog="\n".join(["commands:", *(f"  {name:{width}}  {text}" for name, text in helps.items())])
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
    close = difflib.get_close_matches(word, helps, n=1)
    hint = f'did you mean "{close[0]}"?' if close else f"use one of {', '.join(helps)}"
    print(f'error: there is no command "{word}": {hint}', file=sys.stderr)
    return 2
