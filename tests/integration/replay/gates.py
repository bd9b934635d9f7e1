"""Stream views over what passes gates, as a package of a deployment under test."""

from __future__ import annotations

from tests.gate_events import entered_view
from tests.observed import Passed, gate_view

__all__ = ["Passed", "entered", "gates"]

gates = gate_view(late="amend", keep_state="1d")
entered = entered_view(name="entered", late="amend", keep_state="1d")
