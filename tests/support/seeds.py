"""What is drawn at random: new in every run, and the same again with HEADWATER_SEED."""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import pytest
from hypothesis import HealthCheck, settings

SEED: Final = "HEADWATER_SEED"
PROFILE: Final = "HYPOTHESIS_PROFILE"
FAST, LONG = 20, 600
"""Examples of each property: a few new ones in each run."""
LONGER = 10
"""How much more a long run has of what is expensive."""

Choice = TypeVar("Choice")

_chosen = ""


def choose_seed() -> None:
    """Draw the seed of this run, if none is given; processes that are started from now on have it too."""
    global _chosen  # noqa: PLW0603 - of this process
    if not os.environ.get(SEED):
        os.environ[SEED] = str(random.SystemRandom().randrange(2**32))
    _chosen = os.environ[SEED]


def repeats() -> str:
    """How to draw the same again."""
    # a test may fail while it has another environment
    return f"{SEED}={os.environ.get(SEED) or _chosen} repeats what is drawn at random"


def seed_of(number: int) -> int:
    """One of the seeds of this run."""
    return zlib.crc32(f"{os.environ[SEED]}/{number}".encode())


def load_profile() -> None:
    """Load the hypothesis profile `fast`, or the one that HYPOTHESIS_PROFILE names."""
    # a machine that has other work is slow: nothing that is timed may fail for that
    untimed = settings(settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
    settings.register_profile("fast", parent=untimed, max_examples=FAST)
    settings.register_profile("long", parent=untimed, max_examples=LONG)
    settings.load_profile(os.environ.get(PROFILE) or "fast")


def examples(number: int) -> int:
    """Examples of a property that takes `number` of them in a fast run: more in a long one."""
    return number * LONGER if is_long() else number


def sweep(number: int, deciding: int) -> list[Any]:
    """Parameters of a test that draws at random, one for each draw: all but the first are of the complete suite only.

    deciding: how many of them are in both suites.
    """
    return [pytest.param(draw, marks=[pytest.mark.complete] if draw >= deciding else []) for draw in range(number)]


def batches(number: int) -> int:
    """Batches of a stream that is cut into `number` of them in a long run: fewer in a fast one, each costs a second."""
    return number if is_long() else max(2, number // 3)


def is_long() -> bool:
    """Whether this is a long run, as `make soak` makes."""
    return settings().max_examples >= LONG


def some_of(choices: Sequence[Choice], number: int, draw: int) -> list[Choice]:
    """This many of the choices in a random order, or all of them in a long run; another `draw` draws others."""
    return random.Random(seed_of(draw)).sample(choices, len(choices) if is_long() else number)
