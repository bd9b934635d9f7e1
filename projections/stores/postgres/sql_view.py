"""The expiry of rows in the SQL view under a plain name, which a declaration may change while the view is read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Final

import psycopg

from headwater.projections.errors import StoreUnavailable
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.postgres.connection import connect
from headwater.projections.stores.postgres.errors import meaning
from headwater.projections.stores.postgres.publish import PlainName
from headwater.projections.stores.postgres.store import PostgresStore
from headwater.projections.stores.postgres.text import NAME
from headwater.projections.stores.store import Target

SHOWN: Final = re.compile(r'"?(?P<column>[a-z][a-z0-9_]*)"? > [^>]*make_interval\(secs => [(\']*(?P<seconds>[0-9]+)')
"""`ddl.not_expired`, as PostgreSQL writes it."""


def other_expiry(settings: StoreSettings, target: Target) -> Sequence[str]:
    """What its SQL view shows rows until, if that is not what is declared; raises StoreUnavailable.

    Nothing if the plain name leads elsewhere: to a later version, or nowhere yet.
    """
    with _plain_name(settings, target) as name:
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
    """Let the SQL view show rows until they expire as it is declared now; grants and users' views on it stay.

    Raises StoreUnavailable and CannotPublish.
    """
    changed = other_expiry(settings, target)
    if changed:
        with closing(PostgresStore(settings)) as store:
            store.publish(target)
    return changed


@contextmanager
def _plain_name(settings: StoreSettings, target: Target) -> Iterator[PlainName]:
    try:
        with closing(connect(settings.postgres)) as connection:
            yield PlainName(connection, settings.environment, target)
    except psycopg.Error as error:
        raise meaning(error) or StoreUnavailable(NAME, str(error).strip()) from error
