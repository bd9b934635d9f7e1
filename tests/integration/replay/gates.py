"""Stream views over what passes gates, as a package of a deployment under test."""

from __future__ import annotations

from headwater import Cache, Postgres, Topic
from tests.support.gate_events import Entered, entered_view
from tests.support.observed import Passed, gate_view
from tests.support.recording import recording

__all__ = ["Passed", "entered", "gates"]

gate = recording("gate", "gate", Entered)
gates = gate_view(late="amend", keep_state="1d", stores=(Postgres(), Cache(), Topic()))
entered = entered_view(name="entered", late="amend", keep_state="1d")
