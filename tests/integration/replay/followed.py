"""Table views whose rows programs and other views follow in topics, as a package of a deployment under test."""

from __future__ import annotations

from dataclasses import replace

from headwater import Postgres, Topic
from tests.contracts.fold_views import thing
from tests.contracts.views_over_views import COPIED, PER_DUE, PER_NUMBER
from tests.integration.replay import things

__all__ = ["OVER_VIEWS", "copied", "followed", "followed_groups", "per_due", "per_number", "thing"]

followed = replace(things.by_thing, name="followed", stores=(Postgres(), Topic()))
followed_groups = replace(things.by_group, name="followed_groups", stores=(Postgres(), Topic()))

copied, per_due, per_number = COPIED, PER_DUE, PER_NUMBER
OVER_VIEWS = (copied, per_due, per_number)
"""Views over rows of `followed`; the last one is over rows of `per_due`."""
