"""What unit tests share: an audit log that belongs to nobody, and threads that end at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests.support.audited import MemoryTrail

LOOKS: Final = (
    "headwater.commands.owning.ownership.POLL_S",
    "headwater.commands.owning.ownership.MEMBER_POLL_S",
    "headwater.commands.sending.receipt_follower.IDLE_S",
)
"""How often threads of handlers and gateways look whether they are to end, while no record comes."""


@pytest.fixture(scope="session", autouse=True)
def audit_log() -> Iterator[MemoryTrail]:
    """The audit log of commands in this process."""
    made = MemoryTrail()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headwater.eventlog.audit.trail.Trail", made)
        yield made


@pytest.fixture(scope="session", autouse=True)
def short_looks() -> Iterator[None]:
    """Each test that has a handler or a gateway ends both, and would wait for several looks of theirs."""
    with pytest.MonkeyPatch.context() as patch:
        for each in LOOKS:
            patch.setattr(each, 0.02)
        yield
