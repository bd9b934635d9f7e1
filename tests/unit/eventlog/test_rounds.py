"""When the next round is."""

from __future__ import annotations

import time

import pytest

from headwater.eventlog.rounds import NS, ROUND_S, SENT_BEFORE_S, until_round_s

ROUND_NS = round(ROUND_S * NS)


@pytest.mark.parametrize("past_ns", [0, 1, 33_999_999, 34_000_000, 34_000_001, ROUND_NS - 1])
@pytest.mark.parametrize("rounds", [0, 42_500_000_000])
def test_rounds_begin_at_multiples_and_what_they_work_on_is_sent_shortly_before(
    monkeypatch: pytest.MonkeyPatch, rounds: int, past_ns: int
) -> None:
    now_ns = rounds * ROUND_NS + past_ns
    monkeypatch.setattr(time, "time_ns", lambda: now_ns)
    assert round(until_round_s() * NS) == ROUND_NS - past_ns
    until_sent_ns = round(until_round_s(SENT_BEFORE_S) * NS)
    assert 0 < until_sent_ns <= ROUND_NS
    assert (now_ns + until_sent_ns + round(SENT_BEFORE_S * NS)) % ROUND_NS == 0
