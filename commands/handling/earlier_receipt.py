"""Finds what was answered to a command's id before, and the key of the command's receipt. No I/O but the store's."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from commands.handling.batch import Batch
from commands.handling.decision import Decision
from commands.local_state.state import StateStore
from commands.receipt import SCOPED, Receipt, has_id, scoped_key, was_not_decided
from eventlog.envelope import Envelope


class Earlier(NamedTuple):
    """What is known of a command's id.

    key: of the receipt's record: the command id, unless it is that of another command's receipt.
    first: the decision or receipt that has the id already; None: the id is new.
    stored: the receipt, if it is stored, and not of this batch.
    """

    key: str
    first: Decision | Receipt | None = None
    stored: bytes | None = None

    @property
    def is_decided(self) -> bool:
        """Whether the command is not decided again."""
        match self.first:
            case Receipt():
                return not was_not_decided(self.first)
            case Decision():
                return not self.first.is_undecided
        return False


def earlier_receipt(
    command: Envelope, origin: str | None, fingerprint: str, stored: bytes | None, batch: Batch, store: StateStore
) -> Earlier:
    """What is known of the id of `command`; stored: the receipt in the store whose key is the command id.

    Raises ValueError if a record in its place is no receipt, so that it is not known what was done.
    """
    own = scoped_key(command.id, command.stream, origin)
    for key in (command.id, own):
        pending = batch.decision(key)
        value = None if pending is not None else stored if key == command.id else store.receipt(key)
        first: Decision | Receipt | None = pending
        if value is not None:
            first = Receipt.from_json(value)
        if first is None:
            if key == own or not command.id.startswith(SCOPED):
                return Earlier(key)
        elif has_id(first, command.id, command.stream, origin, fingerprint):
            return Earlier(key, first, value)
    raise ValueError(f'the receipt "{own[:200]}" belongs to another command')


def keep_beside(command_id: str, stored: bytes | None, batch: Batch) -> None:
    """Write the receipt with the key `command_id` again, if there is one, because another is written beside it.

    So it is kept for as long as the others, which are not looked for without it, and it says that there are others.
    stored: the receipt, if it is stored.
    """
    if batch.decision(command_id) is not None:
        batch.share(command_id)
    elif stored is not None:
        batch.add_repeated(command_id, replace(Receipt.from_json(stored), shared=True).to_json())
