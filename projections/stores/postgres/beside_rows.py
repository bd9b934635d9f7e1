"""What a declaration got since its rows were built, and what is changed while they are read and written."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.projections.settings import StoreSettings
from headwater.projections.stores.postgres.indexes import add_indexes, missing_indexes
from headwater.projections.stores.postgres.sql_view import change_expiry, other_expiry
from headwater.projections.stores.store import Target


def missing(settings: StoreSettings, target: Target) -> Sequence[str]:
    """The indexes that a generation lacks, and the expiry that its SQL view lacks; raises StoreUnavailable."""
    return [*missing_indexes(settings, target), *other_expiry(settings, target)]


def add_missing(settings: StoreSettings, target: Target) -> Sequence[str]:
    """Add them, and return them; raises what `add_indexes` and `change_expiry` raise."""
    return [*change_expiry(settings, target), *add_indexes(settings, target)]
