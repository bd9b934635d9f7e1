"""The Python client: sends commands to the log without HTTP, and raises refusals as exceptions.

    from headwater.client import open_blocking_client

It needs the extra `client`, or all of Headwater.
"""

from headwater.commands.errors import (
    CommandError,
    DecideFailed,
    EarlierReceiptsUnread,
    IdempotencyKeyReused,
    MalformedCommand,
    Rejected,
    TooLarge,
    Unanswered,
    UnknownCommand,
    UnreadableCommand,
    WrongVersion,
)
from headwater.commands.receipt import Receipt
from headwater.commands.sending.client import (
    BlockingCommandClient,
    CommandClient,
    Outcome,
    Request,
    open_blocking_client,
    open_client,
)
from headwater.eventlog.errors import EventLogError, KeysUnavailable, LogUnavailable

__all__ = [
    "BlockingCommandClient",
    "CommandClient",
    "CommandError",
    "DecideFailed",
    "EarlierReceiptsUnread",
    "EventLogError",
    "IdempotencyKeyReused",
    "KeysUnavailable",
    "LogUnavailable",
    "MalformedCommand",
    "Outcome",
    "Receipt",
    "Rejected",
    "Request",
    "TooLarge",
    "Unanswered",
    "UnknownCommand",
    "UnreadableCommand",
    "WrongVersion",
    "open_blocking_client",
    "open_client",
]
