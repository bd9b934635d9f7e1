"""What holds for every view of the domains that the tests are about."""

from __future__ import annotations

from headwater.projections.registry import SYSTEM
from headwater.testing import contracts_of_views
from tests.support.domains import COVERED

TestViews = contracts_of_views(*COVERED, SYSTEM)
