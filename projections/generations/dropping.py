"""Drops generations that no reader needs any more: old ones, and what interrupted rebuilds left."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import closing

from projections.errors import ProjectionError
from projections.generations.registry import Generation, Generations
from projections.kinds import placeholder_view
from projections.settings import StoreSettings
from projections.stores.open import open_store
from projections.stores.store import Target
from projections.view import View

log = logging.getLogger(__name__)

Drop = Callable[[View, Generations, StoreSettings], None]
"""Drops some generations of a view."""


def drop_generations(
    view: View, dropped: Sequence[Generation], generations: Generations, settings: StoreSettings
) -> None:
    """Drop generations of a view that are not current, in every store that they were built in."""
    # the registry first: from here on no reader finds them
    generations.retire(view.name, [each.generation for each in dropped])
    for name in sorted({name for each in dropped for name in each.stores}):
        with closing(open_store(name, settings)) as store:
            for each in dropped:
                store.drop(Target(view, each.generation))
    for each in dropped:
        generations.forget(view.name, each.generation)


def drop_old(view: View, generations: Generations, settings: StoreSettings) -> None:
    """Keep the previous generation of a view, for a rollback; drop older ones."""
    retired = [each for each in generations.of(view.name) if each.state == "retired"]
    older = sorted(retired, key=lambda each: each.live_at or each.created_at)[:-1]
    drop_generations(view, older, generations, settings)


def drop_unfinished(view: View, generations: Generations, settings: StoreSettings) -> None:
    """Drop the generations of a view that are being built; the caller holds its rebuild lock."""
    unfinished = [each for each in generations.of(view.name) if each.state == "building"]
    drop_generations(view, unfinished, generations, settings)


def drop_leftovers(generations: Generations, settings: StoreSettings) -> None:
    """Drop the leftovers of interrupted rebuilds of any view; if a store is unavailable, the next rebuild does it."""
    alive = {(each.view, each.generation) for each in generations.being_built()}
    left = [each for each in generations.all() if each.state == "building"]
    for name in sorted({each.view for each in left if (each.view, each.generation) not in alive}):
        try:
            with generations.rebuilding(name):
                drop_unfinished(placeholder_view(name), generations, settings)
            log.info('dropped the leftovers of an interrupted rebuild of "%s"', name)
        except ProjectionError as error:
            log.warning(
                'could not drop the leftovers of a rebuild of "%s", the next rebuild drops them: %s', name, error
            )
