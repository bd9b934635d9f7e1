"""Tells processes which of their commands were refused, through `process-inbox`, in the receipt's transaction."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, unquote

from headwater.commands.codec import read_command
from headwater.commands.declaring.process import Refused
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import MalformedCommand
from headwater.commands.handling.decision import clipped
from headwater.commands.receipt import Receipt, key_of
from headwater.eventlog import topics
from headwater.eventlog.envelope import Envelope, encode, format_time
from headwater.eventlog.errors import NotAnEnvelope
from headwater.eventlog.ports import Entry, Record

REFUSED: Final = "headwater.refused"
"""Type of the envelope with a refusal for a process."""

_ADDRESS: Final = re.compile(r"/headwater/([a-z0-9_]+)/(.*)", re.DOTALL)


def return_address(process: str, key: str | None) -> str:
    """CloudEvents' `source` of a process's command: with the instance's key, if the process handles Refused."""
    return f"/headwater/{process}" if key is None else f"/headwater/{process}/{quote(key, safe='')}"


def is_addressed(command: Envelope) -> bool:
    """Whether a command has a return address with an instance."""
    return command.source.count("/") > 2


def refusals(
    commands: Sequence[tuple[Record, Envelope]],
    receipts: Mapping[str, bytes | None],
    now_ms: int,
    topic_id: str = "",
) -> list[Entry]:
    """The records for `process-inbox` about those of the addressed `commands` that were refused.

    receipts: of these commands, by record key. A command that was sent twice is refused twice, because the first
    process instance may have ended and a new instance with the same key waits for the answer.
    topic_id: of `commands`; a topic that was recreated has the same offsets again.
    """
    refused = []
    reused = defaultdict[str, list[str]](list)
    for key in receipts if commands else ():
        reused[key.rpartition("#")[0]].append(key)  # see reuse_key
    for record, command in commands:
        address, first = _ADDRESS.fullmatch(command.source), key_of(command)
        keys = [first, *reused.get(first, ())]
        receipt = _receipt(command, [receipts.get(key) for key in keys]) if address else None
        if address and receipt is not None and receipt.outcome != "accepted":
            place = f"{record.partition}@{topic_id}" if topic_id else f"{record.partition}"
            error = receipt.error
            refusal = Envelope(
                id=f"refused/{place}/{record.offset}",
                type=REFUSED,
                # an instance sees the answers to its commands in a partition in their order, as the events of a stream
                stream=f"headwater.refused/{place}",
                sequence=record.offset + 1,
                time=max(command.time, datetime.fromtimestamp(now_ms / 1000, UTC)),
                data={
                    "type": command.type,
                    "command": command.data,
                    "outcome": receipt.outcome,
                    "code": error.code if error else "unknown",
                    "message": clipped(error.message) if error else "",
                },
                correlation_id=command.correlation_id,
                causation_id=command.id,
                traceparent=command.traceparent,
            )
            refused.append(Entry(topics.INBOX, f"{address[1]}/{unquote(address[2])}", encode(refusal), now_ms))
    return refused


def read_refused(registry: CommandRegistry, envelope: Envelope) -> Refused:
    """The argument of `react` for an envelope of type REFUSED; raises UnknownCommand or NotAnEnvelope."""
    data = envelope.data
    try:
        command = read_command(registry.command(data["type"]), data["command"], envelope.time, is_sealed=True).command
        return Refused(command, data["outcome"], data["code"], data["message"])
    except (KeyError, MalformedCommand) as error:
        raise NotAnEnvelope(f"not a refusal of a command that this code knows: {error}") from error


def _receipt(command: Envelope, receipts: Sequence[bytes | None]) -> Receipt | None:
    """The receipt of this command among those with its id; one with another body may have the same."""
    time = format_time(command.time)
    read_receipt: Receipt | None = None
    for value in receipts:
        if value is None:
            continue
        receipt = Receipt.from_json(value)
        if (receipt.type, receipt.time) == (command.type, time):
            return receipt
        read_receipt = read_receipt or receipt
    return read_receipt
