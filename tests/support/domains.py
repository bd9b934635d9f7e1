"""Which domains the tests are about."""

from __future__ import annotations

import os

from headwater.eventlog.programs.modules import read_modules, shipped_domains

SHIPPED = tuple(shipped_domains())
COVERED = read_modules(os.environ["HEADWATER_MODULES"]) if os.environ.get("HEADWATER_MODULES") else SHIPPED
"""What is parametrised over the registry: all samples, or else what HEADWATER_MODULES names."""
