"""Why records became dead letters, as one of few causes: by the keys of their letters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from headwater.eventlog.topics import CAPTURED, COMMANDS, EVENTS, INBOX, OBSERVATIONS, PATCHES, PROCESSES

LOST: Final = re.compile(r"[\w.-]+/\d+/\d+-\d+")
"""Key of a letter about offsets that retention deleted."""
ROUTED_BY: Final = "router"
"""The last part of the key if a router could not read the record; the read side may have a letter of its own for it."""
SENT_BY: Final = "outbox"
"""Likewise if a message in an outbox is no command."""
OF_TOPICS: Final[Mapping[str, str]] = {
    COMMANDS: "unreadable command",
    EVENTS: "unreadable event",
    OBSERVATIONS: "unreadable observation",
    PATCHES: "refused patch",
    INBOX: "failed process",
    PROCESSES: "unreadable instance",
}
OTHER: Final = "other"
CAUSES: Final = (
    *OF_TOPICS.values(),
    "unreadable row",
    "not routed",
    "no command in outbox",
    "failed timer",
    "deleted unread",
    OTHER,
)
"""All causes."""


def cause_of(key: str) -> str:
    """One of CAUSES, by the key of a dead letter."""
    topic, *rest = key.split("/")
    *middle, last = rest or [""]
    if LOST.fullmatch(key):
        return "deleted unread"
    if last == ROUTED_BY and len(middle) == 2:
        return "not routed"
    if last == SENT_BY and len(middle) == 2:
        return "no command in outbox"
    if topic == INBOX and middle[1:2] == ["timer"]:
        return "failed timer"
    return OF_TOPICS.get(topic) or ("unreadable row" if topic.startswith(CAPTURED) else OTHER)
