"""The package `followed` after one of its views got a column."""

from __future__ import annotations

from dataclasses import replace

from headwater import count
from tests.contracts.fold_views import thing
from tests.contracts.view_histories import Put
from tests.integration.replay import followed as before
from tests.integration.replay.followed import copied, followed_groups, per_due, per_number

__all__ = ["copied", "followed", "followed_groups", "per_due", "per_number", "thing"]

followed = replace(before.followed, version=2, columns={**before.followed.columns, "puts": count(Put)})
