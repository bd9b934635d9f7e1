"""Points the plain names (SQL view, index alias, key pointer) at the live generation in every store."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from projections.errors import CannotPublish, GenerationMissing, NotPublished, StoreUnavailable, ViewDeclarationError
from projections.generations.registry import Generation, Generations
from projections.settings import StoreSettings
from projections.stores.open import opened
from projections.stores.store import Target, ViewStore
from projections.view import View


def publish_everywhere(
    target: Target, stores: Sequence[ViewStore], on_done: Callable[[int], None] = lambda _: None
) -> None:
    """Point the plain name in each store at `target`. A failing store does not stop the others.

    on_done: called with the number of finished stores. Raises NotPublished with the errors of the others.
    """
    problems = []
    for done, store in enumerate(stores, 1):
        try:
            store.publish(target)
        except (StoreUnavailable, CannotPublish) as error:
            problems.append(str(error))
        else:
            on_done(done)
    if problems:
        raise NotPublished(target.view.name, target.generation, "; ".join(problems))


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
        publish_everywhere(Target(view, live.generation), stores)
    generations.note_published(view.name, live.generation)
    return live
