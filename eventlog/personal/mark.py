"""What a mark of a personal field is, for declarations that cannot have one."""

from __future__ import annotations

from pydantic.fields import FieldInfo


class PersonalMark:
    """Base of `Personal`, which commands, events and states take."""


def has_mark(info: FieldInfo) -> bool:
    """Whether a field is marked as personal."""
    return any(isinstance(mark, PersonalMark) or mark is PersonalMark for mark in info.metadata)
