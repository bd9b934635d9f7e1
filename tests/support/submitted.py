"""Sends one command through a gateway, and waits for its receipt."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Unpack

from headwater.commands.codec import Body
from headwater.commands.receipt import Receipt
from headwater.commands.sending.gateway import CommandGateway
from headwater.commands.sending.prepared_command import Options, prepare


async def submit(gateway: CommandGateway, command_type: str, body: Body, **options: Unpack[Options]) -> Receipt:
    """The receipt of a command with this body; raises what `prepare` raises, LogUnavailable or Unanswered."""
    command = prepare(gateway.registry.command(command_type), body, datetime.now(UTC), **options)
    (answer,) = gateway.send([command])
    return await answer
