"""Points the aliases (SQL view, index alias, key pointer) at generations, and drops those that nobody needs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from datetime import datetime

from headwater.projections.errors import (
    CannotPublish,
    GenerationMissing,
    NotPublished,
    ProjectionError,
    StillNamed,
    StoreUnavailable,
    ViewDeclarationError,
)
from headwater.projections.generations.registry.generation import Generation
from headwater.projections.generations.registry.registry import Generations
from headwater.projections.kinds import placeholder_view
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.open import open_store, opened
from headwater.projections.stores.store import Target, ViewStore
from headwater.projections.view import View

log = logging.getLogger(__name__)


def publish_everywhere(
    target: Target,
    stores: Sequence[ViewStore],
    generations: Generations,
    on_done: Callable[[int], None] = lambda _: None,
) -> None:
    """Point the alias in each store at `target`, and record that. A failing store does not stop the others.

    on_done: called with the number of finished stores. Raises NotPublished with the errors of the others.
    """
    problems = []
    for done, store in enumerate(stores, 1):
        try:
            store.publish(target)
        except (StoreUnavailable, CannotPublish) as error:
            problems.append(str(error))
        except Exception as error:
            log.exception('unexpected error while %s publishes "%s"', store.name, target.view.name)
            problems.append(f"{store.name}: {type(error).__name__}: {error}")
        else:
            on_done(done)
    if not problems:
        try:
            generations.note_published(*target.id)
        except StoreUnavailable as error:
            problems.append(str(error))
    if problems:
        raise NotPublished(*target.id, "; ".join(problems))


def publish_live(view: View, generations: Generations, settings: StoreSettings) -> Generation:
    """Point every alias of `view` at its current generation.

    Raises GenerationMissing, NotPublished, and ViewDeclarationError if the current generation has another version.
    """
    live = generations.live().get(view.name)
    if live is None:
        raise GenerationMissing(view.name)
    if live.tag != view.tag:
        raise ViewDeclarationError(
            view.name, f"its aliases lead to {live.tag}: run `replay publish` with the code of that version"
        )
    with opened(view, settings) as stores:
        publish_everywhere(Target(view, live.generation), stores, generations)
    return live


Drop = Callable[[View, Generations, StoreSettings], None]
"""Drops some generations of a view."""


def drop_generations(
    view: View,
    dropped: Sequence[Generation],
    generations: Generations,
    settings: StoreSettings,
    *,
    is_withdrawn: bool = False,
) -> None:
    """Drop generations of a view that are not current, in every store that they were built in.

    is_withdrawn: the view is removed, with its names. Otherwise nothing is dropped that an alias leads to, whatever
    the registry says, which may have been restored: raises StillNamed.
    """
    with ExitStack() as closing_all:
        names = sorted({name for generation in dropped for name in generation.stores})
        stores = [closing_all.enter_context(closing(open_store(name, settings))) for name in names]
        shown = set() if is_withdrawn else {store.shown(view.name) for store in stores}
        if shown_generations := [generation.generation for generation in dropped if generation.generation in shown]:
            raise StillNamed(view.name, shown_generations)
        # the registry first: from here on no reader finds them
        generations.retire(view.name, [generation.generation for generation in dropped])
        for store in stores:
            for generation in dropped:
                store.drop(Target(view, generation.generation))
    for generation in dropped:
        generations.forget(view.name, generation.generation)


def drop_old(view: View, generations: Generations, settings: StoreSettings) -> None:
    """Keep the previous generation of a view, for a rollback; drop older ones.

    Also keep those that an alias may lead to: code of an earlier version replays while a later one is current.
    """
    kept = named(view.name, generations)
    retired = [generation for generation in generations.of(view.name) if generation.state == "retired"]
    older = [generation for generation in sorted(retired, key=_went_live)[:-1] if generation.generation not in kept]
    drop_generations(view, older, generations, settings)


def check_unnamed(view: str, dropped: Sequence[Generation], generations: Generations) -> None:
    """Raise StillNamed if an alias may lead to one of `dropped`; dropping it would take the name with it."""
    if still_named := sorted({generation.generation for generation in dropped} & named(view, generations)):
        raise StillNamed(view, still_named)


def named(view: str, generations: Generations) -> set[int]:
    """The generations of a view that an alias may lead to.

    All names lead to the current generation once it is published. Until then they may lead to the one that was
    published before, or to any that went live since: a publish may have ended in one store, and not in another.
    """
    current = generations.live().get(view)
    if current is None:
        return set()
    if current.published:
        return {current.generation}
    been_live = [generation for generation in generations.of(view) if generation.state != "building"]
    published = max((_went_live(generation) for generation in been_live if generation.published), default=None)
    return {
        generation.generation for generation in been_live if published is None or _went_live(generation) >= published
    }


def drop_unfinished(view: View, generations: Generations, settings: StoreSettings) -> None:
    """Drop the generations of a view that are being built; the caller holds its rebuild lock."""
    unfinished = [generation for generation in generations.of(view.name) if generation.state == "building"]
    drop_generations(view, unfinished, generations, settings)


def drop_leftovers(generations: Generations, settings: StoreSettings) -> None:
    """Drop the leftovers of interrupted rebuilds of any view; if a store is unavailable, the next rebuild does it."""
    alive = {(generation.view, generation.generation) for generation in generations.being_built()}
    left = [generation for generation in generations.all() if generation.state == "building"]
    for name in sorted(
        {generation.view for generation in left if (generation.view, generation.generation) not in alive}
    ):
        try:
            with generations.rebuilding(name):
                drop_unfinished(placeholder_view(name), generations, settings)
            log.info('dropped the leftovers of an interrupted rebuild of "%s"', name)
        except ProjectionError as error:
            log.warning(
                'could not drop the leftovers of a rebuild of "%s", the next rebuild drops them: %s', name, error
            )


def _went_live(generation: Generation) -> datetime:
    return generation.live_at or generation.created_at
