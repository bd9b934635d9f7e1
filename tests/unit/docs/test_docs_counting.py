"""docs/counting.md: its counts fall when an item changes its state."""

from __future__ import annotations

from datetime import date

from headwater.testing import rows_of
from tests.support.pages import blocks, names_of, read_page
from tests.support.recording import recording


def test_an_appointment_counts_in_its_current_state_only() -> None:
    names = names_of(blocks("python", read_page("counting.md"))[0])
    booked, kept, missed = names["Booked"], names["Kept"], names["Missed"]
    recording("appointment", "appointment_id", booked, kept, missed)
    events = [booked(appointment_id=number, doctor="D", day=date(2026, 3, 1)) for number in "123"]
    events += [missed(appointment_id="1"), kept(appointment_id="2"), kept(appointment_id="1")]
    assert rows_of(names["days"], *events, others=[names["appointments"]]) == {
        "2026-03-01": {"day": "2026-03-01", "appointments": 3, "kept": 2, "missed": 0}
    }
