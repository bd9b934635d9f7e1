"""What holds for every aggregate and event: of the shipped modules, and of those that HEADWATER_MODULES names."""

from __future__ import annotations

import os
from pathlib import Path

from commands.declaring.registry import SHIPPED
from commands.testing import contracts_of
from eventlog.settings import LogSettings

TestShipped = contracts_of(SHIPPED, golden=Path(__file__).parents[1] / "golden")

if MODULES := LogSettings.from_environment(os.environ).modules:
    TestNamed = contracts_of(*MODULES)
