"""What is sent can be stored and answered: anything else is refused where it is sent from."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import MalformedCommand, TooLarge
from headwater.commands.handling.handler import Handler
from headwater.commands.local_state.state import MemoryStore
from headwater.commands.sending.prepared_command import PreparedCommand, prepare
from headwater.eventlog.limits import MAX_NAMES_BYTES
from headwater.eventlog.ports import Record
from headwater.eventlog.topics import COMMANDS
from tests.support.badly_behaved import wild

REGISTRY = CommandRegistry([("here", wild)])
LONGEST = MAX_NAMES_BYTES - len("k" + "wild.do" + "wild/")
NOW = datetime(2026, 1, 2, tzinfo=UTC)


def prepared(wild_id: str, **options: Any) -> PreparedCommand:
    return prepare(REGISTRY.command("wild.do"), {"wild_id": wild_id, "what": "rejected"}, NOW, **options)


@pytest.mark.parametrize(
    ("length", "command_id"),
    [(120_000, None), (LONGEST, "k1"), (5, "k" * MAX_NAMES_BYTES), (5, "😀" * (MAX_NAMES_BYTES // 4))],
)
def test_names_that_do_not_fit_in_a_receipt_are_refused(length: int, command_id: str | None) -> None:
    with pytest.raises(MalformedCommand) as raised:
        prepared("x" * length, command_id=command_id)
    (detail,) = raised.value.details
    assert detail["loc"] == ("wild_id",)
    assert f"more than {MAX_NAMES_BYTES} bytes" in detail["msg"]


def test_the_longest_names_are_answered() -> None:
    record = prepared("x" * LONGEST, command_id="k").entry
    batch = Handler(REGISTRY, 0, 1, MemoryStore()).decide([Record(COMMANDS, 0, 0, record.key, record.value, 0)], 0)
    assert [decision.outcome for decision in batch.decisions] == ["rejected"]


@pytest.mark.parametrize("more", [{"correlation_id": "x" * 1_000_000}, {"causation_id": "😀" * 250_000}])
def test_a_record_that_kafka_would_refuse_is_refused(more: dict[str, str]) -> None:
    with pytest.raises(TooLarge, match="the command's record has"):
        prepared("\U0001f600" * 10, **more)


def test_an_empty_id_of_a_related_message_is_none() -> None:
    empty = prepared("w", command_id="k", correlation_id="", causation_id="", traceparent="")
    assert empty == prepared("w", command_id="k")
