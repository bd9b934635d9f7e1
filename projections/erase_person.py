"""`headwater erase PERSON`: destroys the key of a person, and empties the columns that stores have in clear."""

from __future__ import annotations

import os
import sys

from headwater.eventlog.erasing import cli
from headwater.eventlog.settings import LogSettings
from headwater.projections.registry import ViewRegistry
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.erasing import ClearErasure, clear_stores

app = cli.app
UNKNOWN = (
    "erase: HEADWATER_MODULES is not set, so columns in clear are not looked at here; a running read side empties them"
)


def in_clear() -> ClearErasure | None:
    """The columns in clear of the deployment in the environment; None if its modules are not known."""
    if not os.environ.get("HEADWATER_MODULES"):
        print(UNKNOWN, file=sys.stderr)
        return None
    settings = LogSettings.from_environment(os.environ)
    views = ViewRegistry.load(settings.modules).views.values()
    return ClearErasure(StoreSettings.from_environment(os.environ), clear_stores(views))


def main() -> None:
    """Run the command line."""
    cli.main(in_clear)


if __name__ == "__main__":
    main()
