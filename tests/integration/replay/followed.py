"""Table views whose rows programs follow in topics, as a package of a deployment under test."""

from __future__ import annotations

from dataclasses import replace

from headwater import Postgres, Topic
from tests.contracts.fold_views import thing
from tests.integration.replay import things

__all__ = ["followed", "followed_groups", "thing"]

followed = replace(things.by_thing, name="followed", stores=(Postgres(), Topic()))
followed_groups = replace(things.by_group, name="followed_groups", stores=(Postgres(), Topic()))
