"""What the producer of the tests does about a record that is not stored."""

from __future__ import annotations

import pytest

from tests.support.ordered_producer import ordered_producer, stored


def test_a_record_that_is_not_stored_fails_the_test() -> None:
    broker = {"test.mock.num.brokers": 1, "log_level": 0}  # the client's own mock
    producer = ordered_producer("", **broker)
    producer.produce("records", b"", b"kept", partition=0)
    stored(producer)
    producer.produce("records", b"", b"lost", partition=99)
    with pytest.raises(AssertionError, match=r"records/99 has not stored b'lost': .*partition"):
        stored(producer)
