"""`python -m tests.integration.projections.loader_process STORE`: a loader of the view `by_group`, as a process."""

from __future__ import annotations

import os
import sys

from headwater.eventlog.programs.stopping import Stopping
from headwater.eventlog.settings import LogSettings
from headwater.projections.loading.loader import Loader
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.open import open_store
from headwater.projections.stores.store import Target
from tests.contracts.view_histories import BY_GROUP


def main() -> None:
    stop = Stopping.by_signals()
    store = open_store(sys.argv[1], StoreSettings.from_environment(os.environ))
    Loader(store, lambda: [Target(BY_GROUP, 1)], LogSettings.from_environment(os.environ)).run(stop)


if __name__ == "__main__":
    main()
