"""The live generation of a view, for verbs that compare it with what this code declares."""

from __future__ import annotations

from collections.abc import Callable

from headwater.projections.generations.registry.generation import Generation, has_declaration_of
from headwater.projections.generations.registry.registry import Generations
from headwater.projections.view import View
from headwater.replay.errors import ReplayError


def live_generation(generations: Generations, view: View, refusal: Callable[[str, str], ReplayError]) -> Generation:
    """The live generation; raises `refusal(view, problem)` if there is none, or if it has another declaration."""
    live = generations.serving([view]).get(view.name)
    if live is None:
        raise refusal(view.name, "it has no live generation: rebuild it")
    if not has_declaration_of(live, view):
        raise refusal(
            view.name, f"its live generation is {live.tag}, which has another declaration: run the code of that version"
        )
    return live
