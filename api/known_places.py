"""Cursors of what is known about a person behind the events: where a page of one kind ended."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from typing import Any

import orjson

from headwater.api.errors import BadParameter
from headwater.api.requests.cursor import STALE


def place_cursor(kind: str, person: str, *place: Any) -> str:
    """The cursor of the page from a place on; bound to the person. kind: of what this and the next pages have."""
    document = orjson.dumps([kind, _digest(person), *place])
    return base64.urlsafe_b64encode(document).rstrip(b"=").decode()


def place_of(kind: str, person: str, cursor: str | None) -> Sequence[Any] | None:
    """The place in a cursor of this kind; None if it is of another kind. Raises BadParameter if of another person."""
    text = cursor or ""
    try:
        match orjson.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)):
            case [str(found), digest, *place] if found == kind:
                if digest != _digest(person):
                    raise BadParameter("cursor", STALE)
                return place
    except (ValueError, binascii.Error):
        return None  # the cursor of events is read, and refused, where they are
    return None


def _digest(person: str) -> str:
    return hashlib.blake2b(person.encode(errors="surrogateescape"), digest_size=8).hexdigest()
