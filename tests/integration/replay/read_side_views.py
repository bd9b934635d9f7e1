"""The views of the read side that the tests share: few, since Spark compiles each of them."""

from __future__ import annotations

from tests.contracts.fold_views import thing
from tests.integration.replay.followed import followed, per_due
from tests.integration.replay.gates import Passed, gates
from tests.integration.replay.things import by_group

__all__ = ["Passed", "by_group", "followed", "gates", "per_due", "thing"]
