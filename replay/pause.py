"""`replay pause | resume`: stop applying events to views, and go on."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from headwater.projections.errors import RebuildFailed
from headwater.replay.deployment import open_deployment
from headwater.replay.errors import CannotPause
from headwater.replay.output import AsJson, say
from headwater.replay.verbs import Everything, OnStep, Outcome, Views, check_choice, chosen, on_each


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


def _report(outcome: Outcome[Paused], as_json: bool, found: str, otherwise: str) -> None:
    if as_json:
        outcome.print_json(to_json=asdict)
    else:
        for each in outcome.done:
            say(f"{each.view}: {found.format(each.since) if each.since else otherwise}")
        if not (outcome.done or outcome.failed):
            say("no view is paused")
    outcome.complain()
