"""What holds for every aggregate and event of the domains that the tests are about."""

from __future__ import annotations

from headwater.testing import contracts_of
from tests.support.domains import COVERED

TestAggregates = contracts_of(*COVERED)
