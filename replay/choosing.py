"""Which views a verb is about: `[VIEW…|--all]`, which means the same for each of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

import typer

Views = Annotated[list[str] | None, typer.Argument(metavar="VIEW", help="The views.", show_default=False)]
Everything = Annotated[bool, typer.Option("--all", help="Every view.")]
ReadAll = Annotated[bool, typer.Option("--all", help="Every view, which is also meant where none is named.")]


def check_choice(
    views: Collection[str] | None, everything: bool, what: str = "views", *, reading: bool = False
) -> None:
    """Raise BadParameter unless views are named or --all is said, and not both.

    reading: nothing is changed, so that neither means all of them.
    """
    if views and everything:
        raise typer.BadParameter(f"name {what}, or say --all, not both")
    if not (views or everything or reading):
        raise typer.BadParameter(f"name the {what}, or say --all")


def chosen(views: Collection[str] | None, known: Collection[str]) -> list[str]:
    """The views that are named, each once and in that order, else all that are known."""
    return list(dict.fromkeys(views or known))
