"""`replay prune | drop | publish`: generations that are not needed any more, and the names of those that are."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from projections.expressions import envelope
from projections.generations import Generation
from projections.rebuild import publish_live
from projections.view import Postgres, TableView
from replay.deployment import Deployment, open_deployment
from replay.errors import NothingToDrop
from replay.output import AsJson, console, print_json


def prune(
    views: Annotated[list[str] | None, typer.Argument(help="The views; all of them without one.")] = None,
    as_json: AsJson = False,
) -> None:
    """Drop every generation that is not live, also what killed rebuilds left: `replay rollback` has none then."""
    with open_deployment(os.environ) as deployment:
        deployment.generations.prepare()
        known = {each.view for each in deployment.generations.all()}
        for name in views or ():
            if name not in known:
                deployment.views.view(name)
        dropped: list[Generation] = []
        rebuilder = deployment.rebuilder()
        for name in sorted(known if not views else set(views)):
            with deployment.generations.rebuilding(name):
                old = [each for each in deployment.generations.of(name) if each.state != "live"]
                rebuilder.drop(_stand_in(name), old)
                dropped += old
    _tell(dropped, as_json)


def drop(
    name: Annotated[str, typer.Argument(help="A view made with `replay rebuild --as`, or one that nobody declares.")],
    as_json: AsJson = False,
) -> None:
    """Remove a view that no code declares, with all its rows."""
    with open_deployment(os.environ) as deployment:
        deployment.generations.prepare()
        undeclared = {each.view for each in deployment.generations.all()} - deployment.views.views.keys()
        if name not in undeclared:
            raise NothingToDrop(name, sorted(undeclared))
        with deployment.generations.rebuilding(name):
            generations = deployment.generations.of(name)
            # the registry first: from here on nobody is led to it
            deployment.generations.withdraw(name)
            deployment.rebuilder().drop(_stand_in(name), generations)
    _tell(generations, as_json)


def publish(views: Annotated[list[str], typer.Argument(help="The views.")], as_json: AsJson = False) -> None:
    """Point the plain names of each VIEW (SQL view, index alias, key pointer) at its live generation again.

    A rebuild does it after the swap; this repairs them where it was killed, or a store was away, at that moment.
    """
    with open_deployment(os.environ) as deployment:
        deployment.generations.prepare()
        chosen = [deployment.views.view(name) for name in views]
        done = {view.name: _publish(deployment, view) for view in chosen}
    if as_json:
        print_json({"views": [{"view": name, "generation": number} for name, number in done.items()]})
        return
    for name, number in done.items():
        console.print(f"{name}: the plain names lead to generation {number}")


def _publish(deployment: Deployment, view: TableView) -> int:
    return publish_live(view, deployment.generations, deployment.stores).generation


def _stand_in(name: str) -> TableView:
    """A view of which only the name matters: stores drop by name, and its declaration may be gone."""
    return TableView(name=name, key=envelope("id"), key_name="id", columns={}, stores=(Postgres(),))


def _tell(dropped: list[Generation], as_json: bool) -> None:
    if as_json:
        print_json({"dropped": [{"view": each.view, "generation": each.generation} for each in dropped]})
        return
    for each in dropped:
        console.print(f"dropped generation {each.generation} of {each.view}")
    if not dropped:
        console.print("nothing to drop")
