"""Master keys, with which the keys of persons are wrapped before they are stored."""

from __future__ import annotations

import binascii
import hashlib
import secrets
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from headwater.eventlog.errors import KeysUnavailable, SettingError
from headwater.eventlog.programs.variables import secret

VARIABLE: Final = "HEADWATER_MASTER_KEY"
KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
NEEDS: Final = (
    "a key that `headwater master-key make` prints; during a rotation the new key and then the old one, separated by a "
    "space or a line end"
)


def new_master_key() -> str:
    """A new master key, as text."""
    return b64encode(secrets.token_bytes(KEY_BYTES)).decode()


class MasterKeys:
    """The master keys of a deployment; the first one wraps, and each unwraps what it has wrapped."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        """keys: of KEY_BYTES bytes, at least one."""
        self._ciphers = {hashlib.blake2b(key, digest_size=4).hexdigest(): AESGCM(key) for key in keys}
        self.current = next(iter(self._ciphers))
        """The id of the first one."""

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> MasterKeys:
        """Those of HEADWATER_MASTER_KEY, or of the file that this name with _FILE names; raises SettingError."""
        keys = []
        for text in secret(env, VARIABLE).split():
            try:
                key = b64decode(text, validate=True)
            except (binascii.Error, ValueError):
                key = b""
            if len(key) != KEY_BYTES:
                raise SettingError(VARIABLE, "…", NEEDS)
            keys.append(key)
        if not keys:
            raise SettingError(VARIABLE, "", NEEDS)
        return cls(keys)

    def wrap(self, key_id: str, person: str, secret: bytes) -> bytes:
        """A person's key as it is stored, bound to its id and its person."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        return nonce + self._ciphers[self.current].encrypt(nonce, secret, f"{key_id}\n{person}".encode())

    def unwrap(self, master: str, key_id: str, person: str, wrapped: bytes) -> bytes:
        """The key again; master: the id of the master key that has wrapped it. Raises KeysUnavailable."""
        cipher = self._ciphers.get(master)
        if cipher is None:
            raise KeysUnavailable(f"a key was wrapped by the master key {master}, which is not in {VARIABLE}: add it")
        try:
            return cipher.decrypt(wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], f"{key_id}\n{person}".encode())
        except (InvalidTag, ValueError) as error:
            raise KeysUnavailable(f"the key {key_id} was changed in its store") from error
