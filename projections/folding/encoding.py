"""Rows as bytes between tasks: MessagePack, which has no integers over 64 bits; sums may be larger on the way."""

from __future__ import annotations

from typing import Any, Final

import msgspec

BIG: Final = 1
"""The code of an integer over 64 bits, as text."""


def encode(value: Any) -> bytes:
    """Rows as bytes."""
    try:
        return msgspec.msgpack.encode(value)
    except OverflowError:  # rare, and slow to look for in every value
        return msgspec.msgpack.encode(_portable(value))


def decoder(kind: Any) -> Any:
    """A decoder of what `encode` made of such a value."""
    return msgspec.msgpack.Decoder(kind, ext_hook=_big)


def _portable(value: Any) -> Any:
    match value:
        case int() if not -(2**63) <= value < 2**64:
            return msgspec.msgpack.Ext(BIG, str(value).encode())
        case list() | tuple():
            return [_portable(each) for each in value]
        case dict():
            return {name: _portable(each) for name, each in value.items()}
        case _:
            return value


def _big(_: int, text: memoryview) -> int:
    return int(bytes(text))
