"""What a declaration got since its rows were built, and what is changed while they are read and written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import closing
from typing import Final

from headwater.projections.settings import StoreSettings
from headwater.projections.stores.postgres.connection import ANSWER_S, connected
from headwater.projections.stores.postgres.indexes import add_indexes, missing_indexes
from headwater.projections.stores.postgres.publish import PlainName
from headwater.projections.stores.postgres.store import PostgresStore
from headwater.projections.stores.store import Target

SHOWN: Final = re.compile(r'"?(?P<column>[a-z][a-z0-9_]*)"? > [^>]*make_interval\(secs => [(\']*(?P<seconds>[0-9]+)')
"""`ddl.not_expired`, as PostgreSQL writes it."""


def missing(settings: StoreSettings, target: Target) -> Sequence[str]:
    """The indexes that a generation lacks, and the expiry that its SQL view lacks; raises StoreUnavailable."""
    return [*missing_indexes(settings, target), *other_expiry(settings, target)]


def add_missing(settings: StoreSettings, target: Target) -> Sequence[str]:
    """Add them, and return them; raises StoreUnavailable, CannotPublish and Unloadable."""
    return [*change_expiry(settings, target), *add_indexes(settings, target)]


def other_expiry(settings: StoreSettings, target: Target) -> Sequence[str]:
    """What its SQL view shows rows until, if that is not what is declared; raises StoreUnavailable.

    Nothing if the plain name leads elsewhere: to a later version, or nowhere yet.
    """
    with connected(settings, autocommit=False, answer_s=ANSWER_S) as connection:
        name = PlainName(connection, settings.environment, target)
        if not name.leads_to_target():
            return []
        found = SHOWN.search(name.definition())
    expiry = target.view.expiry
    declared = None if expiry is None else (expiry.column, int(expiry.after.total_seconds()))
    shown = None if found is None else (found["column"], int(found["seconds"]))
    if shown == declared:
        return []
    return ["expiry of the SQL view" if expiry is None else f"expiry of the SQL view by {expiry.column}"]


def change_expiry(settings: StoreSettings, target: Target) -> Sequence[str]:
    """Let the SQL view show rows until they expire as it is declared now; grants and users' views on it stay."""
    changed = other_expiry(settings, target)
    if changed:
        with closing(PostgresStore(settings)) as store:
            store.publish(target)
    return changed
