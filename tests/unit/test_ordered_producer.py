"""What the producer of the tests does about a record that is not stored."""

from __future__ import annotations

import pytest

from tests.support.lost_clients import NOWHERE
from tests.support.ordered_producer import ordered_producer, stored


def test_a_record_that_is_not_stored_fails_the_test() -> None:
    producer = ordered_producer(NOWHERE, **{"message.timeout.ms": 100, "log_level": 0})
    producer.produce("records", b"", b"lost", partition=3)
    with pytest.raises(AssertionError, match=r"records/3 has not stored b'lost': .*timed out"):
        stored(producer)
