"""`replay verify | diff`: generations compared row by row."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import Annotated

import typer
from rich.table import Table

from projections.errors import GenerationMissing
from projections.generations import Generation
from projections.stores.open import open_reader
from projections.stores.store import Target
from replay.comparison import Comparison, compare
from replay.deployment import Deployment, open_deployment
from replay.errors import CannotDiff
from replay.output import AsJson, console, print_json, steps
from replay.verify import verify as verify_view

DIFFERENT_EXIT = 3
GENERATION = re.compile(r"(?P<view>[a-z0-9_]+)(?:@g(?P<number>\d+))?")


def verify(view: Annotated[str, typer.Argument(help="The view.")], as_json: AsJson = False) -> None:
    """Rebuild VIEW aside and compare it, row by row, with the live generation. Exit code 3: rows differ.

    Queries and live updates go on; rows that change meanwhile are looked at again. What was built aside is dropped.
    """
    with open_deployment(os.environ) as deployment:
        deployment.generations.prepare()
        with steps(quiet=as_json) as on_step:
            found = verify_view(deployment.rebuilder(), deployment.views.view(view), on_step)
    if as_json:
        print_json(found.to_json())
    else:
        for each in found.stores:
            _show(each, f"{found.view} g{found.generation}", "replay")
    if not found.equal:
        raise typer.Exit(DIFFERENT_EXIT)


def diff(
    left: Annotated[str, typer.Argument(help="`VIEW@g3`, or `VIEW`: its live generation.")],
    right: Annotated[str, typer.Argument(help="Another one; a view made with --as has a name of its own.")],
    store: Annotated[str, typer.Option(help="Where to compare; by default the first store that has both.")] = "",
    as_json: AsJson = False,
) -> None:
    """Compare two generations row by row. Exit code 3: rows differ.

    The live one is kept up to date and others are not, so what came since shows as a difference too.
    """
    with open_deployment(os.environ) as deployment:
        deployment.generations.prepare()
        ours, theirs = _generation(deployment, left), _generation(deployment, right)
        if ours.declaration[1:] != theirs.declaration[1:]:
            raise CannotDiff(left, right, "they are declared differently: `replay plan` shows how")
        shared = [each for each in ours.stores if each in theirs.stores]
        if store and store not in shared:
            raise CannotDiff(left, right, f'store "{store}" does not have both: use {" or ".join(shared) or "none"}')
        where = store or shared[0]
        found = compare(
            open_reader(where, deployment.stores),
            where,
            _target(deployment, ours, left, right),
            _target(deployment, theirs, left, right),
            lambda: frozenset,
        )
    if as_json:
        print_json({"left": _name(ours), "right": _name(theirs), **found.to_json()})
    else:
        _show(found, _name(ours), _name(theirs))
    if found.differences:
        raise typer.Exit(DIFFERENT_EXIT)


def _generation(deployment: Deployment, text: str) -> Generation:
    match = GENERATION.fullmatch(text)
    if match is None:
        raise typer.BadParameter(f'"{text}" is no generation: write VIEW@g3, or VIEW for its live one')
    name, number = match["view"], match["number"]
    if number is None:
        live = deployment.generations.live().get(name)
        if live is None:
            raise GenerationMissing(name)
        return live
    for each in deployment.generations.of(name):
        if each.generation == int(number):
            return each
    raise GenerationMissing(name, int(number))


def _target(deployment: Deployment, generation: Generation, left: str, right: str) -> Target:
    """The generation as something to read; its declaration must be the code's."""
    view = deployment.views.view(generation.source or generation.view)
    if view.declaration[1:] != list(generation.declaration[1:]):
        raise CannotDiff(left, right, f"{_name(generation)} is {generation.tag}: run the code of that version")
    return Target(replace(view, name=generation.view), generation.generation)


def _name(generation: Generation) -> str:
    return f"{generation.view}@g{generation.generation}"


def _show(found: Comparison, left: str, right: str) -> None:
    told = f"{found.store}: {found.rows:,} rows compared, {found.differences:,} differ"
    undecided = f", {found.undecided:,} changed each time they were looked at" if found.undecided else ""
    console.print(told + undecided)
    if found.sample:
        table = Table("key", left, right)
        for each in found.sample:
            shown = ("not there" if state is None else str(state) for state in (each.left, each.right))
            table.add_row(each.key, *shown)
        console.print(table)
