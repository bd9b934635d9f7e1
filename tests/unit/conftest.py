"""What no unit test may reach: an audit log that belongs to somebody."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.audited import MemoryTrail


@pytest.fixture(scope="session", autouse=True)
def audit_log() -> Iterator[MemoryTrail]:
    """The audit log of commands in this process."""
    made = MemoryTrail()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("eventlog.audit.commands.Trail", made)
        yield made
