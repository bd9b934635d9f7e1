"""What holds for every aggregate and event of the domains that the tests are about."""

from __future__ import annotations

from pathlib import Path

from commands.testing import contracts_of
from tests.domains import COVERED, SHIPPED

if shipped := [name for name in COVERED if name in SHIPPED]:
    TestShipped = contracts_of(*shipped, golden=Path(__file__).parents[1] / "golden")

if named := [name for name in COVERED if name not in SHIPPED]:
    TestNamed = contracts_of(*named)
