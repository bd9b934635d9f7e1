"""The text of an encrypted value, as records, rows and documents have it in place of the value.

`sealed:1:<key id>:<record type>:<field>:<nonce and ciphertext, in base64 for URLs>`. The text says what is needed to
open it, but the person is known only to the store of keys.
"""

from __future__ import annotations

import binascii
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Container
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

PREFIX: Final = "sealed:"
VERSION: Final = "1"
START: Final = f"{PREFIX}{VERSION}:"
KEY_ID: Final = "[0-9a-f]{24}"
"""The ids of keys, as a regular expression: by them, the events of a person are found."""
_PARTS: Final = 6
_FORM: Final = rf'{PREFIX}[0-9]+:{KEY_ID}:[^:"\\]*:[^:"\\]*:[A-Za-z0-9_-]*'
_IS_SEALED: Final = re.compile(_FORM)
_SEALED_IN_JSON: Final = re.compile(rf'(?<!\\)"{_FORM}"(?!\s*:)')
"""A sealed text in a JSON text, which is no name of a member. No text begins behind the end of another one."""
_NO_KEY: Final = "0" * 24
"""In place of a key id, in the text of a value that is withheld: random key ids are never this one."""


class SealedText(NamedTuple):
    """The parts of an encrypted value.

    key_id: of the person's key. record_type: of the message, or the name of the aggregate or process whose state has
    the value. field: its place in there, such as `lines.email`. sealed: nonce and ciphertext.
    """

    key_id: str
    record_type: str
    field: str
    sealed: bytes

    def __str__(self) -> str:
        text = urlsafe_b64encode(self.sealed).rstrip(b"=").decode()
        return f"{START}{self.key_id}:{self.record_type}:{self.field}:{text}"

    @classmethod
    @lru_cache(maxsize=1024)  # it is parsed to fetch its key, and then to open it
    def parse(cls, text: str) -> SealedText:
        """Read a text for which `is_sealed` is true; raises ValueError if it is damaged, or of a later release."""
        parts = text.split(":")
        if len(parts) != _PARTS or parts[1] != VERSION:
            raise ValueError("an encrypted value is damaged, or was written by a later release")
        _, _, key_id, record_type, field, encoded = parts
        try:
            sealed = urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
        except (binascii.Error, ValueError) as error:
            raise ValueError("an encrypted value is damaged") from error
        return cls(key_id, record_type, field, sealed)


def withheld(record_type: str, field: str) -> str:
    """The text in place of a value that is not sent, because sealing it would make a key for an erased person."""
    return str(SealedText(_NO_KEY, record_type, field, b""))


def left_text(key_id: str, record_type: str, field: str) -> str:
    """The text in place of a value from before an erasure, which nobody seals any more: as if it had been sealed with
    the key that was destroyed."""
    return str(SealedText(key_id, record_type, field, b""))


def is_withheld(value: Any) -> bool:
    """Whether a value is a text of `withheld`."""
    return type(value) is str and value.startswith(f"{START}{_NO_KEY}:")


def is_sealed(value: Any) -> bool:
    """Whether a value has the form of a ciphertext; others that begin as they do are what somebody has written."""
    return type(value) is str and value.startswith(PREFIX) and _IS_SEALED.fullmatch(value) is not None


def is_sealed_for(value: Any, record_types: Container[str], path: str) -> bool:
    """Whether a value is a ciphertext that belongs to this field of a record, and was not copied there from another.

    record_types: those under which the record may have been sealed. path: of names, from the message on.
    """
    if not is_sealed(value):
        return False
    try:
        parsed = SealedText.parse(value)
    except ValueError:
        return True  # it is shown as unreadable
    return parsed.record_type in record_types and parsed.field == path


def changed_texts(value: Any, change: Callable[[str], Any]) -> Any:
    """A value with changed ciphertexts, at any depth; also in a text of JSON, as columns of JSON have it."""
    match value:
        case str() if is_sealed(value):
            return change(value)
        case str() if f'"{PREFIX}' in value:
            return _changed_json(value, change)
        case list():
            return [changed_texts(item, change) for item in value]
        case dict():
            return {name: changed_texts(item, change) for name, item in value.items()}
    return value


def _changed_json(text: str, change: Callable[[str], Any]) -> str:
    """A JSON text with changed ciphertexts, and all else as it was written: a parser would lose digits of numbers."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    return _SEALED_IN_JSON.sub(lambda groups: orjson.dumps(change(orjson.loads(groups[0]))).decode(), text)
