"""What holds for every view: of the shipped modules, and of those that HEADWATER_MODULES names."""

from __future__ import annotations

import os

from commands.declaring.registry import SHIPPED as AGGREGATES
from eventlog.settings import LogSettings
from projections.registry import SHIPPED
from projections.testing import contracts_of_views

TestShipped = contracts_of_views(SHIPPED, AGGREGATES)

if MODULES := LogSettings.from_environment(os.environ).modules:
    TestNamed = contracts_of_views(*MODULES)
