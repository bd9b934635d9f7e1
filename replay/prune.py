"""`replay prune | drop | publish | pause | resume`: what may be done to generations that are built."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from headwater.projections.errors import RebuildFailed, StillNamed
from headwater.projections.generations.registry.generation import Generation
from headwater.projections.generations.registry.publishing import check_unnamed, drop_generations, publish_live
from headwater.projections.kinds import placeholder_view
from headwater.projections.spark.stream_queries.checkpoint import forget
from headwater.projections.view import generation_tag
from headwater.replay.deployment import Deployment, open_deployment
from headwater.replay.errors import CannotPause, NothingToDrop
from headwater.replay.output import AsJson, complain, confirm, errors, print_json, say
from headwater.replay.verbs import FAILED_EXIT, Everything, OnStep, Outcome, Views, check_choice, chosen, on_each


@dataclass(frozen=True)
class Paused:
    """A view, and since when it is or was paused, an RFC 3339 time in UTC; None: it was not."""

    view: str
    since: str | None


def pause(views: Views = None, everything: Everything = False, as_json: AsJson = False) -> None:
    """Stop applying events to each VIEW until `replay resume`, also after restarts. Queries go on with its rows.

    Loaders stop within a second, in every store; a rebuild, a rollback or a verification is refused. A view that is
    paused for longer than patches are kept (2 days) is replayed when it is resumed.
    """
    check_choice(views, everything)
    with open_deployment(os.environ) as deployment:
        declared = deployment.declared(views)
        deployment.generations.prepare()

        def act(name: str, _: OnStep) -> Paused:
            if name not in deployment.generations.serving([declared[name]]):
                raise CannotPause(name, "it has no live generation: rebuild it")
            try:
                return _paused(name, deployment.generations.pause(name))
            except RebuildFailed as error:
                raise CannotPause(name, error.cause) from error

        on_each(
            declared,
            act,
            lambda outcome: _report(outcome, as_json, "paused since {}; loaders stop within a second", ""),
        ).exit()


def resume(views: Views = None, everything: Everything = False, as_json: AsJson = False) -> None:
    """Apply events to each VIEW again, from where it was paused."""
    check_choice(views, everything)
    with open_deployment(os.environ) as deployment:
        deployment.generations.prepare()
        paused = deployment.generations.paused()
        deployment.check_known(views, paused)
        on_each(
            chosen(views, paused),
            lambda name, _: _paused(name, deployment.generations.resume(name)),
            lambda outcome: _report(outcome, as_json, "resumed; it was paused since {}", "was not paused"),
        ).exit()


def _paused(view: str, since: datetime | None) -> Paused:
    return Paused(view, None if since is None else since.astimezone(UTC).isoformat(timespec="seconds"))


def _report(outcome: Outcome[Paused], as_json: bool, message: str, otherwise: str) -> None:
    if as_json:
        outcome.print_json(to_json=asdict)
    else:
        for result in outcome.done:
            say(f"{result.view}: {message.format(result.since) if result.since else otherwise}")
        if not (outcome.done or outcome.failed):
            say("no view is paused")
    outcome.complain()


Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print what would be dropped.")]


def prune(
    views: Views = None,
    everything: Everything = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Drop all generations of each VIEW except the current one, including those of interrupted rebuilds.

    A view is refused while an alias may lead to one of them, because `replay publish` is still to do.

    Afterwards `replay rollback` is impossible, and running code of an earlier version loses its views. So the command
    asks for confirmation.
    """
    check_choice(views, everything)
    with open_deployment(os.environ) as deployment:
        deployment.generations.prepare()
        registered = deployment.generations.all()
        known = {generation.view for generation in registered}
        deployment.check_known(views, known)
        names = set(chosen(views, known))
        current = _current(deployment)
        old = [
            generation
            for generation in registered
            if generation.view in names and (generation.view, generation.generation) not in current
        ]
        _drop(deployment, old, yes, dry_run, as_json)


def drop(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="VIEW", help="Views made with `replay rebuild --as`, or no longer declared."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every view that this code does not declare.")] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Remove each VIEW that this code does not declare, with all its generations. Asks for confirmation."""
    check_choice(names, everything)
    with open_deployment(os.environ) as deployment:
        deployment.generations.prepare()
        registered = deployment.generations.all()
        undeclared = {generation.view for generation in registered} - deployment.views.views.keys()
        for name in names or ():
            if name not in undeclared:
                raise NothingToDrop(name, sorted(undeclared))
        wanted = set(chosen(names, undeclared))
        _drop(
            deployment,
            [generation for generation in registered if generation.view in wanted],
            yes,
            dry_run,
            as_json,
            withdraw=True,
        )


def publish(views: Views = None, everything: Everything = False, as_json: AsJson = False) -> None:
    """Point the aliases of each VIEW (SQL view, index alias, key pointer) at its live generation again.

    A rebuild does this after the swap. Use this command if the rebuild was killed or a store was unavailable then.
    """
    check_choice(views, everything)
    with open_deployment(os.environ) as deployment:
        deployment.generations.prepare()
        declared = deployment.declared(views)
        on_each(
            declared,
            lambda name, _: publish_live(declared[name], deployment.generations, deployment.stores),
            lambda outcome: outcome.report(
                as_json, _to_json, lambda done: f"{done.view}: the aliases lead to generation {done.generation}"
            ),
        ).exit()


def _drop(
    deployment: Deployment,
    generations: Sequence[Generation],
    yes: bool,
    dry_run: bool,
    as_json: bool,
    withdraw: bool = False,
) -> None:
    """Drop these generations if the user confirms. withdraw: also the live ones, which removes their views.

    Otherwise views of which an alias may lead to one of them are refused.
    """
    errors().print(deployment.settings.described, soft_wrap=True)
    by_view: dict[str, list[Generation]] = {}
    for generation in generations:
        by_view.setdefault(generation.view, []).append(generation)
    refused: dict[str, StillNamed] = {}
    for view, of_view in by_view.items() if not withdraw else ():
        try:
            check_unnamed(view, of_view, deployment.generations)
        except StillNamed as error:
            refused[view] = error
    droppable = [generation for generation in generations if generation.view not in refused]
    if dry_run:
        if as_json:
            print_json({"would_drop": [_to_json(generation) for generation in droppable]})
        else:
            _say_each("would drop", droppable, nothing=not refused)
        for refusal in refused.values():
            complain(str(refusal))
        if refused:
            raise typer.Exit(FAILED_EXIT)
        return
    if droppable and not yes:
        errors().print(f"{len(droppable)} to drop:")
        for generation in droppable:
            errors().print(f"  {_text(generation)}", soft_wrap=True)
        confirm("Drop them?")

    def act(view: str, _: OnStep) -> list[Generation]:
        if view in refused:
            raise refused[view]
        return _drop_of(deployment, view, {generation.generation for generation in by_view[view]}, withdraw)

    def report(outcome: Outcome[list[Generation]]) -> None:
        dropped = [generation for generations in outcome.done for generation in generations]
        if as_json:
            Outcome(dropped, outcome.failed, outcome.unfinished).print_json("dropped", _to_json)
        else:
            _say_each("dropped", dropped, nothing=not outcome.failed)
        outcome.complain()

    on_each(by_view, act, report).exit()


def _drop_of(deployment: Deployment, view: str, agreed: set[int], withdraw: bool) -> list[Generation]:
    with deployment.generations.rebuilding(view):
        # read again: a generation may have become live since the user confirmed, and new ones were not confirmed
        current = _current(deployment)
        generations = [
            generation
            for generation in deployment.generations.of(view)
            if withdraw or ((view, generation.generation) not in current and generation.generation in agreed)
        ]
        if withdraw:
            # the registry first: from here on no reader finds it
            deployment.generations.withdraw(view)
        else:
            check_unnamed(view, generations, deployment.generations)
        drop_generations(
            placeholder_view(view), generations, deployment.generations, deployment.stores, is_withdrawn=withdraw
        )
        for generation in generations:
            forget(deployment.settings, generation_tag(generation.tag, generation.generation))
    return generations


def _current(deployment: Deployment) -> set[tuple[str, int]]:
    """The generations that the aliases lead to; a generation of an earlier version may also be live."""
    return {(generation.view, generation.generation) for generation in deployment.generations.live().values()}


def _say_each(what: str, generations: Sequence[Generation], nothing: bool) -> None:
    for generation in generations:
        say(f"{what} {_text(generation)}")
    if nothing and not generations:
        say("nothing to drop")


def _text(generation: Generation) -> str:
    return f"generation {generation.generation} of {generation.view} (version {generation.version}, {generation.state})"


def _to_json(generation: Generation) -> dict[str, Any]:
    return {
        "view": generation.view,
        "generation": generation.generation,
        "version": generation.version,
        "state": generation.state,
    }
