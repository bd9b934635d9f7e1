"""Ids of aggregates and keys of instances as text."""

from __future__ import annotations

from enum import Enum
from typing import Any


def id_text(value: Any) -> str:
    """The text of an id field's value, in the names of streams and in keys; that of an Enum is the text of its value.

    Views have the value as their key, too: they read it from JSON, which has no names of members.
    """
    if type(value) is str:  # nearly always
        return value
    return str(value.value if isinstance(value, Enum) else value)
