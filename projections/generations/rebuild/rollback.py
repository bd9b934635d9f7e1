"""A rollback: makes the previous generation of a view live again."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from headwater.projections.errors import RebuildFailed, RollbackFailed
from headwater.projections.generations.rebuild.build import Build, Options, Rebuilt, Step
from headwater.projections.generations.rebuild.builder import Builder, failures_of
from headwater.projections.generations.rebuild.resources import Resources
from headwater.projections.generations.rebuild.strategies import strategy_of
from headwater.projections.generations.registry.generation import Generation, previous
from headwater.projections.generations.registry.kept_up import missed, missed_since
from headwater.projections.generations.registry.registry import Generations
from headwater.projections.generations.registry.sources import Noted
from headwater.projections.generations.registry.topic_ids import made_again, topic_ids
from headwater.projections.stores.store import Target
from headwater.projections.view import View


def roll_back(builder: Builder, view: View, on_step: Callable[[Step], None] = lambda _: None) -> Rebuilt:
    """Make the previous generation live again, once it has caught up.

    Raises RollbackFailed if there is none, if this code declares another version, or if it may have missed deletions of
    captured rows that the log no longer has.
    """
    try:
        return _roll_back(builder, view, on_step)
    except RebuildFailed as error:
        raise RollbackFailed(error.view, error.phase, error.cause) from error


def _roll_back(builder: Builder, view: View, on_step: Callable[[Step], None]) -> Rebuilt:
    began = monotonic()
    with builder.resources(view) as using:
        before = _previous(view, using.generations)
        build = Build(Target(view, before.generation), using, Noted({}, {}), on_step, Options(allow_older=True), began)
        _check_topics(before, view, using)
        _check_deletions(before, build.target, using)
        with failures_of(build):
            strategy_of(view).roll_back(builder, build)
    return build.result


def _previous(view: View, generations: Generations) -> Generation:
    """The generation to roll back to: the one with this declaration that was live last."""
    current = generations.live().get(view.name)
    own, others = previous(view, generations.of(view.name), None if current is None else current.generation)
    if not others:
        raise RebuildFailed(
            view.name, "start", f"there is no previous generation: see `replay generations {view.name}`"
        )
    if own is None:
        raise RebuildFailed(
            view.name,
            "start",
            f"generation {others[-1].generation} is {others[-1].tag}, but this code has another declaration, "
            f"{view.tag}: run the code of that version",
        )
    return own


def _check_topics(before: Generation, view: View, using: Resources) -> None:
    """Raise RebuildFailed if its events, or its patches, are not those of the log any more."""
    for topic in made_again(before.topics, topic_ids(using.log, [view])):
        cause = f'generation {before.generation}: topic "{topic}" was deleted and made again since it was built'
        raise RebuildFailed(view.name, "start", f"{cause}: run `replay rebuild {view.name}`")


def _check_deletions(before: Generation, target: Target, using: Resources) -> None:
    """Raise RebuildFailed if it may have missed deletions of captured rows."""
    name = target.view.name
    for store in using.stores:
        since = missed_since(target.view, before, store.name)
        if since is not None:
            raise RebuildFailed(name, "start", f"generation {before.generation}: {missed(since, name)}")
