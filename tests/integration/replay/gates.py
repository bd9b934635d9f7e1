"""A stream view over what passes gates, as a package of a deployment under test."""

from __future__ import annotations

from tests.observed import Passed, gate_view

__all__ = ["Passed", "gates"]

gates = gate_view(late="amend", keep_state="1d")
