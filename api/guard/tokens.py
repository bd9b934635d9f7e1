"""Callers with tokens of an OpenID Connect issuer: JSON Web Tokens (RFC 7519)."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import jwt
import msgspec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt import PyJWK
from jwt.exceptions import (
    ExpiredSignatureError,
    ImmatureSignatureError,
    InvalidAudienceError,
    InvalidIssuerError,
    MissingRequiredClaimError,
    PyJWTError,
)

from headwater.api.errors import IssuerUnavailable, Unauthenticated
from headwater.api.guard.caller import Caller
from headwater.api.guard.jwks import ALGORITHMS, IssuerKeys, KeySource
from headwater.api.guard.scopes import Scopes
from headwater.api.guard.watched_file import WatchedFile
from headwater.api.settings import ROLES
from headwater.eventlog.actors import NEEDS, is_actor
from headwater.eventlog.errors import SettingError

LEEWAY_S: Final = 30
"""How far the clocks of the issuer and of this machine may differ."""
MAX_TOKEN_BYTES: Final = 16 * 1024
_scopes_of: Final = lru_cache(1_000)(Scopes.of)
"""Each request of a token asks for its scopes several times."""
REMEMBERED: Final = 10_000
"""Tokens whose signature is not verified again."""


class Roles:
    """The roles of a file, which is read again when it changes. While it cannot be read, no role has a scope."""

    def __init__(self, path: Path | None, claim: str) -> None:
        """Read the file; raises SettingError. claim: with the roles of a token, such as `realm_access.roles`."""
        self._file: WatchedFile[Mapping[str, Sequence[str]]] | None = (
            None if path is None else WatchedFile(path, read_roles, {})
        )
        self.claim = claim

    def every(self) -> Mapping[str, Sequence[str]]:
        """The scopes of each role."""
        return {} if self._file is None else self._file.current()

    def scopes(self, claims: Mapping[str, Any]) -> Sequence[str]:
        """The scopes of the roles in these claims."""
        if self._file is None:
            return ()
        claimed_roles: Any = claims.get(self.claim)  # a name may have dots itself, as that of a URL
        if claimed_roles is None:
            claimed_roles = claims
            for part in self.claim.split("."):
                claimed_roles = claimed_roles.get(part) if isinstance(claimed_roles, Mapping) else None
        named = (
            claimed_roles.split()
            if isinstance(claimed_roles, str)
            else claimed_roles
            if isinstance(claimed_roles, list)
            else ()
        )
        roles = self._file.current()
        return [scope for role in named if isinstance(role, str) for scope in roles.get(role, ())]


def read_roles(path: Path) -> Mapping[str, Sequence[str]]:
    """The scopes of each role in a file such as `{"clerk": ["commands:order.*"]}`; raises SettingError."""
    needs = 'a JSON file such as {"clerk": ["commands:order.*", "views:orders"]}'
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, tuple[str, ...]])
    except OSError as error:
        raise SettingError(ROLES, str(path), f"{needs} ({error.strerror or type(error).__name__})") from error
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise SettingError(ROLES, str(path), f"{needs} ({' '.join(str(error).split())[:200]})") from error


class Tokens:
    """The tokens of one issuer, for one audience."""

    def __init__(
        self,
        issuer: str,
        audience: str,
        keys: KeySource,
        roles: Roles,
        is_taken: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """is_taken: whether a name is that of an API key, which no token may have as its subject."""
        self._issuer, self._audience, self._keys, self._roles = issuer, audience, keys, roles
        self._is_taken = is_taken
        self._verified = OrderedDict[bytes, tuple[Caller, Any]]()

    async def caller(self, token: str) -> Caller:
        """Whose token it is; raises Unauthenticated, or IssuerUnavailable without keys of the issuer."""
        if len(token) > MAX_TOKEN_BYTES:
            raise Unauthenticated(f"the token has more than {MAX_TOKEN_BYTES} bytes")
        keys, name = self._keys.current(), hashlib.sha256(token.encode()).digest()
        known = self._verified.get(name)
        if known is not None and known[1] is keys and _is_current(known[0]):
            caller = known[0]
        else:
            key, keys = await self._key(token, keys)
            caller = self._caller(self._claims(token, key), fingerprint(key))
            self._verified[name] = (caller, keys)
            if len(self._verified) > REMEMBERED:
                self._verified.popitem(last=False)
        if self._is_taken(caller.name or ""):  # also by a key that was made since
            raise Unauthenticated("the subject of the token is the name of an API key")
        return self._with_scopes(caller)

    def renewed(self, caller: Caller) -> Caller | None:
        """The caller of a token that was verified before, with its scopes now; None if it is not valid any more."""
        is_signed = caller.signed_by in map(fingerprint, self._keys.current().values())
        is_valid = is_signed and _is_current(caller) and not self._is_taken(caller.name or "")
        return self._with_scopes(caller) if is_valid else None

    def is_valid(self, caller: Caller) -> bool:
        """Whether the token of this caller is still valid, with the same scopes."""
        renewed = self.renewed(caller)
        return renewed is not None and renewed.scopes == caller.scopes

    def granting(self, claims: Mapping[str, Any]) -> Mapping[str, Any]:
        """Those of the claims that give a caller its scopes."""
        names = ("scope", "scp", self._roles.claim, self._roles.claim.partition(".")[0])
        return {name: claims[name] for name in names if name in claims}

    def close(self) -> None:
        """Stop looking for keys."""
        self._keys.close()

    async def _key(self, token: str, keys: IssuerKeys) -> tuple[PyJWK, IssuerKeys]:
        """The key that the token names, which may have to be fetched, and all keys."""
        try:
            header = jwt.get_unverified_header(token)
        except PyJWTError:
            raise Unauthenticated("the token is no JSON Web Token") from None
        algorithm, key_id = header.get("alg"), header.get("kid", "")
        if algorithm not in ALGORITHMS:
            raise Unauthenticated(f"the token is not signed with one of {', '.join(ALGORITHMS)}")
        if "crit" in header or not isinstance(key_id, str):
            raise Unauthenticated("the token has a header that is not supported")
        if key_id not in keys:
            keys = await self._keys.with_key(key_id)
        if not keys:
            raise IssuerUnavailable
        jwk = keys.get(key_id) or (next(iter(keys.values())) if not key_id and len(keys) == 1 else None)
        if jwk is None:
            raise Unauthenticated("the token names a key that its issuer does not have")
        return jwk, keys

    def _claims(self, token: str, key: PyJWK) -> Mapping[str, Any]:
        """The claims of a token with a valid signature, time, issuer and audience."""
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                audience=self._audience,
                issuer=self._issuer,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
            float(claims["exp"])  # which may be too large
        except ExpiredSignatureError:
            raise Unauthenticated("the token has expired: get a new one") from None
        except ImmatureSignatureError:
            raise Unauthenticated("the token is not valid yet: compare the clocks of the issuer and the API") from None
        except InvalidAudienceError:
            raise Unauthenticated("the token is for another audience") from None
        except InvalidIssuerError:
            raise Unauthenticated("the token is of another issuer") from None
        except MissingRequiredClaimError as error:
            raise Unauthenticated(f'the token has no claim "{error.claim}"') from None
        except (PyJWTError, ValueError, TypeError, OverflowError):
            raise Unauthenticated("the token is not valid: its signature or a claim is wrong") from None
        return claims

    def _caller(self, claims: Mapping[str, Any], signed_by: str) -> Caller:
        subject = claims["sub"]
        if not is_actor(subject):
            raise Unauthenticated(f"the subject of the token is not {NEEDS}")
        return Caller(subject, Scopes(), float(claims["exp"]), claims, signed_by=signed_by)

    def _with_scopes(self, caller: Caller) -> Caller:
        """The caller with the scopes of its token and of its roles, whose file may have changed."""
        claims = caller.claims
        words = (*_words(claims.get("scope")), *_words(claims.get("scp")), *self._roles.scopes(claims))
        return replace(caller, scopes=_scopes_of(words))


@lru_cache
def fingerprint(key: PyJWK) -> str:
    """The digest of a public key, which names it although another one may get its id."""
    public = key.key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(public).hexdigest()[:32]


def _is_current(caller: Caller) -> bool:
    return caller.expires_s is None or time.time() < caller.expires_s + LEEWAY_S


def _words(claim: Any) -> Sequence[str]:
    """The words of `scope`, a text, or of `scp`, which some issuers write as a list."""
    if isinstance(claim, str):
        return claim.split()
    return [role for role in claim if isinstance(role, str)] if isinstance(claim, list) else []
