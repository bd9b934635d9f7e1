"""Points the plain names (SQL view, index alias, key pointer) at the live generation in every store."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from projections.errors import CannotPublish, NotPublished, StoreUnavailable
from projections.stores.store import Target, ViewStore


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
