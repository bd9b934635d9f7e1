"""Limits of records that several modules keep to, counted in bytes of UTF-8 as Kafka counts them."""

from __future__ import annotations

from typing import Final

MAX_RECORD_BYTES: Final = 4 * 1024 * 1024
"""Of what the handler writes: a command's body may come back in several events, or as base64 in a dead letter."""
MAX_ENTRY_BYTES: Final = MAX_RECORD_BYTES - 64 * 1024
"""Of a record's key and value together; Kafka also counts its framing, and a copy of an event may have a longer key."""
MAX_COPY_BYTES: Final = MAX_RECORD_BYTES - 16 * 1024
"""Of key and value of a copy in `process-inbox`: of an event, whose value may have nearly MAX_ENTRY_BYTES."""
MAX_INSTANCE_KEY_BYTES: Final = 16 * 1024
"""Of the key of a process instance, and of the name of its timers: with such a key, a copy is still a valid record."""
MAX_BODY_BYTES: Final = 900_000
"""Of a command's body: its record has at most 1 MiB, and the envelope needs space as well."""
MAX_COMMAND_BYTES: Final = 960 * 1024
"""Of a command's record with its key: the topic allows 1 MiB, and Kafka also counts framing."""
MAX_NAMES_BYTES: Final = 100_000
"""Of a command's id, type and stream together, which its receipt repeats."""
MAX_TRANSACTION_BYTES: Final = 8 * 1024 * 1024
"""Of what one transaction appends; its last record may exceed it. A larger transaction delays every reader, or takes
longer than Kafka lets it be open.
"""


def size_of(text: str) -> int:
    """The bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def entry_size(key: str, value: bytes | None) -> int:
    """The bytes of a record's key and value together."""
    return size_of(key) + len(value or b"")
