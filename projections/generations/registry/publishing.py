"""Points the plain names (SQL view, index alias, key pointer) at the live generation in every store."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from headwater.projections.errors import (
    CannotPublish,
    GenerationMissing,
    NotPublished,
    StoreUnavailable,
    ViewDeclarationError,
)
from headwater.projections.generations.registry.generation import Generation
from headwater.projections.generations.registry.registry import Generations
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.open import opened
from headwater.projections.stores.store import Target, ViewStore
from headwater.projections.view import View

log = logging.getLogger(__name__)


def publish_everywhere(
    target: Target,
    stores: Sequence[ViewStore],
    generations: Generations,
    on_done: Callable[[int], None] = lambda _: None,
) -> None:
    """Point the plain name in each store at `target`, and record that. A failing store does not stop the others.

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
    """Point every plain name of `view` at its current generation.

    Raises GenerationMissing, NotPublished, and ViewDeclarationError if the current generation has another version.
    """
    live = generations.live().get(view.name)
    if live is None:
        raise GenerationMissing(view.name)
    if live.tag != view.tag:
        raise ViewDeclarationError(
            view.name, f"its plain names lead to {live.tag}: run `replay publish` with the code of that version"
        )
    with opened(view, settings) as stores:
        publish_everywhere(Target(view, live.generation), stores, generations)
    return live
