"""The public keys of an issuer of tokens (JWKS), and how they are kept up to date."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.error import HTTPError

import certifi
import orjson
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWK, PyJWKClient
from jwt.exceptions import PyJWKClientConnectionError, PyJWKClientError, PyJWTError

from headwater.api.guard.watched_file import WatchedFile
from headwater.api.settings import ISSUER, JWKS, url_problem
from headwater.eventlog.errors import SettingError

ALGORITHMS: Final = ("RS256", "ES256", "EdDSA")
DISCOVERY: Final = "/.well-known/openid-configuration"
MIN_RSA_BITS: Final = 2048
FETCH_S: Final = 10.0
"""Between the beginnings of two fetches, whatever tokens arrive."""
REFRESH_S: Final = 300.0
"""After which keys are fetched again although none is missing, because one may have been withdrawn."""
TIMEOUT_S: Final = 5.0
MAX_AGE_S: Final = 24 * 60 * 60.0
"""After this time without an answer of the issuer, its keys are not used: one may have been withdrawn."""
MAX_WAITING: Final = 100
"""Requests that wait for a fetch; more are refused at once."""

IssuerKeys = Mapping[str, PyJWK]
"""By key id; empty for a key without one."""

logger = logging.getLogger(__name__)


class NoKeys(Exception):
    """A document has no keys that can be used, or cannot be fetched; passing: it may be possible later."""

    def __init__(self, reason: str, *, passing: bool = False) -> None:
        super().__init__(reason)
        self.passing = passing


class KeySource(Protocol):
    """Where the keys of an issuer come from."""

    def current(self) -> IssuerKeys:
        """The keys that are known now; empty: none were ever found."""

    async def with_key(self, key_id: str) -> IssuerKeys:
        """The keys, after looking for an unknown one if that is due."""

    def close(self) -> None:
        """Stop looking for keys."""


class FileKeys:
    """The keys in a file, read again when it changes; if they then cannot be read, the ones before stay valid."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the file; raises SettingError."""
        self._file: WatchedFile[IssuerKeys] = WatchedFile(path, _read_file, None, clock)

    def current(self) -> IssuerKeys:
        """See KeySource."""
        return self._file.current()

    async def with_key(self, key_id: str) -> IssuerKeys:
        """See KeySource."""
        return self._file.current()

    def close(self) -> None:
        """See KeySource."""


class FetchedKeys:
    """The keys that an issuer offers at a URL. A fetch that fails removes none for a day; none blocks the event loop.

    PyJWT's client caches keys itself, but holds a lock while it fetches, drops them when they expire, and limits no
    fetches that fail: a flood of unknown key ids would hold up all requests while the issuer is away.
    """

    def __init__(self, fetch: Callable[[], IssuerKeys], clock: Callable[[], float] = time.monotonic) -> None:
        """Fetch once; raises NoKeys if the answer has none. If there is no answer, try again later.

        fetch: blocks, and raises NoKeys.
        """
        self._fetch, self._clock = fetch, clock
        self._began_s = self._fetched_s = clock()
        self._fetching: asyncio.Task[None] | None = None
        self._waiting = 0
        self._keys: IssuerKeys = {}
        try:
            self._keys = fetch()
        except NoKeys as error:
            if not error.passing:
                raise
            self._fetched_s = float("-inf")
            logger.warning("%s; no token is accepted until its keys were fetched", error)

    def current(self) -> IssuerKeys:
        """See KeySource."""
        age_s = self._clock() - self._fetched_s
        if age_s >= REFRESH_S:
            self._begin()
        return self._keys if age_s < MAX_AGE_S else {}

    async def with_key(self, key_id: str) -> IssuerKeys:
        """See KeySource."""
        self._begin()
        fetching = self._fetching
        if fetching is not None and not fetching.done() and self._waiting < MAX_WAITING:
            self._waiting += 1
            try:
                await asyncio.wait([fetching], timeout=TIMEOUT_S)
            finally:
                self._waiting -= 1
        return self.current()

    def close(self) -> None:
        """See KeySource."""
        if self._fetching is not None:
            self._fetching.cancel()

    def _begin(self) -> None:
        """Begin to fetch, unless it was begun a moment ago."""
        now_s = self._clock()
        if now_s - self._began_s >= FETCH_S:
            self._began_s = now_s
            self._fetching = asyncio.create_task(self._refresh())

    async def _refresh(self) -> None:
        try:
            self._keys = await asyncio.to_thread(self._fetch)
            self._fetched_s = self._clock()
        except NoKeys as error:
            logger.warning("%s; the keys that were fetched before stay valid for a day", error)


def open_keys(issuer: str, jwks: str) -> KeySource:
    """The keys of an issuer: of a file, of a URL, or (empty) as its discovery document says; raises SettingError."""
    if jwks and "://" not in jwks:
        return FileKeys(Path(jwks))
    try:
        return FetchedKeys(lambda: keys_of(_fetched(jwks or _discovered(issuer))))
    except NoKeys as error:
        if jwks:
            raise SettingError(JWKS, jwks, f"the URL of its keys ({error})") from error
        needs = f"an OpenID Connect issuer with keys ({error}), or set {JWKS}"
        raise SettingError(ISSUER, issuer, needs) from error


def keys_of(document: Any) -> IssuerKeys:
    """The keys in a JWKS document that may sign tokens; raises NoKeys if there are none.

    Others are left out: for encryption, symmetric, private, too short, or for other algorithms.
    """
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise NoKeys("it is not a JWKS document: it has no list of keys")
    jwks: dict[str, PyJWK] = {}
    for jwk in listed:
        if not isinstance(jwk, dict) or jwk.get("use", "sig") != "sig" or jwk.get("kty") == "oct":
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                key = PyJWK(jwk)
        except (PyJWTError, ValueError, TypeError, KeyError, AttributeError):
            continue
        key_id = jwk.get("kid", "")
        too_short = isinstance(key.key, RSAPublicKey) and key.key.key_size < MIN_RSA_BITS
        is_public = not hasattr(key.key, "private_bytes")
        if isinstance(key_id, str) and key.algorithm_name in ALGORITHMS and is_public and not too_short:
            jwks[key_id] = key
    if not jwks:
        raise NoKeys(f"it has no key for signatures with {', '.join(ALGORITHMS)}")
    return jwks


def _read_file(path: Path) -> IssuerKeys:
    try:
        return keys_of(orjson.loads(path.read_bytes()))
    except (OSError, orjson.JSONDecodeError, NoKeys) as error:
        reason = (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__
        raise SettingError(JWKS, str(path), f"a JWKS file, or a URL ({reason})") from error


def _discovered(issuer: str) -> str:
    document = _fetched(issuer.rstrip("/") + DISCOVERY)
    named, url = document.get("issuer"), document.get("jwks_uri")
    if named != issuer:
        raise NoKeys(f"its discovery document is of another issuer: {str(named)[:200]!r}")
    if not isinstance(url, str) or (problem := url_problem(url)):
        raise NoKeys(f"the jwks_uri of its discovery document is wrong: {problem if isinstance(url, str) else 'none'}")
    return url


@cache
def _trusted() -> ssl.SSLContext:
    """The authorities that issuers' certificates are checked with: to read them holds up all requests for a moment, so
    it is done once, when the API starts."""
    return ssl.create_default_context(cafile=os.environ.get("SSL_CERT_FILE") or certifi.where())


def _fetched(url: str) -> Mapping[str, Any]:
    """The JSON object at a URL; raises NoKeys. Redirects are not followed, because they may lead anywhere."""
    client = PyJWKClient(url, cache_jwk_set=False, timeout=TIMEOUT_S, ssl_context=_trusted())
    try:
        document: Mapping[str, Any] = client.fetch_data()
    except (PyJWKClientConnectionError, OSError) as error:
        cause = error.__cause__ or error
        if isinstance(cause, HTTPError):
            raise NoKeys(f"{url} answers {cause.code}", passing=cause.code >= 500 or cause.code == 429) from error
        raise NoKeys(f"{url} does not answer: {getattr(cause, 'reason', cause)}", passing=True) from error
    except (PyJWKClientError, ValueError, RecursionError) as error:
        raise NoKeys(f"{url} does not answer with a JSON object") from error
    return document
