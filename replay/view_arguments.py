"""The views that a command works on: `[VIEW…|--all]`, the same for every command."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

import typer

Views = Annotated[list[str] | None, typer.Argument(metavar="VIEW", help="The views.", show_default=False)]
Everything = Annotated[bool, typer.Option("--all", help="Every view.")]
SkipPoison = Annotated[
    bool,
    typer.Option(
        "--skip-poison", help="Send unreadable records, and patches that a store refuses, to dead-letters and continue."
    ),
]
ReadAll = Annotated[bool, typer.Option("--all", help="Every view. This is the default.")]


def check_choice(
    views: Collection[str] | None, everything: bool, what: str = "views", *, reading: bool = False
) -> None:
    """Raise BadParameter unless either views or --all are given.

    reading: the command changes nothing, so without any argument it means all views.
    """
    if views and everything:
        raise typer.BadParameter(f"give {what} or --all, not both")
    if not (views or everything or reading):
        raise typer.BadParameter(f"give {what} or --all")


def chosen(views: Collection[str] | None, known: Collection[str]) -> list[str]:
    """The given views without duplicates, or all known views if none are given."""
    return list(dict.fromkeys(views or known))
