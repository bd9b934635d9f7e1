"""Rounds: under load, services work at the same times, so that one takes together what others have sent together.

A command alone costs a request to Kafka, a transaction, and a batch in every store; twenty together cost little more.
So who has more than one thing to do waits for the next round. Who has not, waits for nothing.
"""

from __future__ import annotations

import time
from typing import Final

NS: Final = 1_000_000_000
ROUND_S: Final = 0.04
"""From one round to the next. Without rounds, 500 commands per second in four partitions kept two cores busy."""
SENT_BEFORE_S: Final = 0.006
"""How long before a round that is sent which is to be worked on in it."""


def until_round_s(before_s: float = 0.0) -> float:
    """Seconds until the next round, or until `before_s` seconds before it: more than 0, at most ROUND_S.

    Rounds begin at multiples of ROUND_S of the wall clock, so machines share them as far as their clocks agree.
    """
    round_ns = round(ROUND_S * NS)
    return (round_ns - (time.time_ns() + round(before_s * NS)) % round_ns) / NS
