"""Seals values with AES-GCM, and opens them (NIST SP 800-38D, by `cryptography`). No I/O."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any, Final

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from headwater.eventlog.personal.ports import SECRET_BYTES, PersonKey
from headwater.eventlog.personal.sealed_text import SealedText

NONCE_BYTES: Final = 12


class Sealer:
    """Seals and opens the values of one key.

    The nonce is a digest of the value and its place under a second key. So a message that is sent again has the same
    text, and the same fingerprint; and equal values of one person have equal texts at the same place only. No nonce is
    used for two different values: 96 bits of HMAC-SHA-256 would have to be the same.
    """

    def __init__(self, key: PersonKey) -> None:
        half = SECRET_BYTES // 2
        self.key_id, self.person, self.earlier = key.key_id, key.person, key.earlier
        self._cipher, self._nonces = AESGCM(key.secret[:half]), key.secret[half:]

    def seal(self, record_type: str, field: str, value: Any) -> str:
        """The sealed text of a JSON value; it is bound to the person, the type of its record and its field."""
        about, plain = self._about(record_type, field), orjson.dumps(value)
        nonce = hmac.digest(self._nonces, hashlib.sha256(about).digest() + plain, "sha256")[:NONCE_BYTES]
        sealed = nonce + self._cipher.encrypt(nonce, plain, about)
        return str(SealedText(self.key_id, record_type, field, sealed))

    def open(self, text: SealedText) -> Any:
        """The value of a text that was sealed with this key; raises ValueError if the text was changed."""
        nonce, sealed = text.sealed[:NONCE_BYTES], text.sealed[NONCE_BYTES:]
        try:
            plain = self._cipher.decrypt(nonce, sealed, self._about(text.record_type, text.field))
        except (InvalidTag, ValueError) as error:
            raise ValueError(f'a sealed value of "{text.field}" in "{text.record_type}" was changed') from error
        return orjson.loads(plain)

    def _about(self, record_type: str, field: str) -> bytes:
        return orjson.dumps([self.person, record_type, field])
