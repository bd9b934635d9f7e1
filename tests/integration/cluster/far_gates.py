"""A stream view with state, for a deployment of its own."""

from __future__ import annotations

from headwater import Postgres
from tests.support.observed import Passed, gate_view

__all__ = ["Passed", "gates"]

gates = gate_view(stores=(Postgres(),))
