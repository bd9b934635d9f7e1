"""Whether a command that is sent again after the erasure of a person is the one that was decided.

It is sealed with a new key, so its fingerprint is another one. Its receipt therefore has a digest of what is in clear,
and one of the sealed texts of each key. After an erasure, the texts of that key cannot be compared any more, and all
else can. A digest of sealed texts says no more than the texts, which are in the log: without the key, nobody can make
the text of a value that they guess.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import Final

import orjson

from headwater.commands.codec import fingerprint_of
from headwater.commands.receipt import Answered
from headwater.eventlog.personal.sealed_text import SealedText, changed_texts

MAX_KEYS: Final = 16
"""Of one command in its receipt; a command with more persons has no digests."""
_DIGEST_BYTES: Final = 8


def sealed_digests(command_type: str, body: bytes, expected_version: int | None) -> str:
    """The digests of a canonical body: `<what is in clear> <key id>:<its texts> …`; empty if nothing is sealed."""
    texts = defaultdict[str, list[str]](list)
    places, are_left = 0, False

    def place(text: str) -> str:
        nonlocal places, are_left
        places += 1
        try:
            parsed = SealedText.parse(text)
        except ValueError:  # somebody's own text
            return text
        if parsed.sealed:
            texts[parsed.key_id].append(f"{places} {text}")
        else:  # without a value that could be another one
            are_left = True
        return "sealed"

    clear = orjson.dumps(changed_texts(orjson.loads(body), place))
    if not (texts or are_left) or len(texts) > MAX_KEYS:
        return ""
    keys = [f"{key_id}:{_digest(each)}" for key_id, each in sorted(texts.items())]
    return " ".join([fingerprint_of(command_type, clear, expected_version), *keys])


def is_same(first: Answered, fingerprint: str, digests: str) -> bool:
    """Whether a command with this fingerprint and these digests is `first`, as far as keys that are left tell.

    The keys of a person change only if the person is erased.
    """
    if first.fingerprint == fingerprint:
        return True
    if not first.sealed or not digests:
        return False
    (first_clear, first_keys), (clear, keys) = _parsed(first.sealed), _parsed(digests)
    is_rekeyed = any(each not in keys for each in first_keys)
    both = first_keys.keys() & keys.keys()
    return first_clear == clear and is_rekeyed and all(first_keys[each] == keys[each] for each in both)


def _digest(texts: list[str]) -> str:
    return hashlib.blake2b("\n".join(texts).encode(), digest_size=_DIGEST_BYTES).hexdigest()


def _parsed(digests: str) -> tuple[str, dict[str, str]]:
    clear, *keys = digests.split(" ")
    return clear, {key_id: digest for key_id, _, digest in (each.partition(":") for each in keys)}
