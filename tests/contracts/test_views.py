"""What holds for every view of the domains that the tests are about."""

from __future__ import annotations

from headwater.testing import contracts_of_views
from projections.registry import SYSTEM
from tests.support.domains import COVERED

TestViews = contracts_of_views(*COVERED, SYSTEM)
