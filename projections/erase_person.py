"""`headwater erase PERSON`: destroys the key of a person, and empties the columns that stores have in plaintext."""

from __future__ import annotations

import os

from headwater.eventlog.erasing import cli
from headwater.eventlog.settings import LogSettings
from headwater.projections.generations.registry.registry import Generations
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.erasing import ClearErasure

app = cli.app


def in_clear() -> ClearErasure:
    """The plaintext columns of the deployment in the environment, whatever its modules declare."""
    stores = StoreSettings.of(os.environ, LogSettings.without_modules(os.environ))
    return ClearErasure(stores, Generations(stores.postgres, stores.environment).stores)


def main() -> None:
    """Run the command line."""
    cli.main(in_clear)


if __name__ == "__main__":
    main()
