"""Tokens of an issuer: which are taken, and how the issuer's keys are fetched."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import ssl
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from headwater.api.errors import IssuerUnavailable, Unauthenticated
from headwater.api.guard.caller import Caller
from headwater.api.guard.jwks import FETCH_S, MAX_AGE_S, FetchedKeys, FileKeys, IssuerKeys, NoKeys, keys_of, open_keys
from headwater.api.guard.tokens import LEEWAY_S, MAX_TOKEN_BYTES, Roles, Tokens
from headwater.eventlog.errors import SettingError
from tests.unit.api.issuing import AUDIENCE, ISSUER, KEYS, answering, jwks, private_key, public_jwk, token


class Known:
    """Keys that are known already; wanted: the ids of keys that were looked for."""

    def __init__(self, *key_ids: str) -> None:
        self.keys = keys_of(jwks(*key_ids))
        self.wanted: list[str] = []

    def current(self) -> IssuerKeys:
        return self.keys

    async def with_key(self, key_id: str) -> IssuerKeys:
        self.wanted.append(key_id)
        return self.keys

    def close(self) -> None:
        """Nothing."""


def tokens(source: Any = None, roles: Roles | None = None, taken: str = "") -> Tokens:
    return Tokens(ISSUER, AUDIENCE, source or Known(), roles or Roles(None, "roles"), lambda name: name == taken)


def caller(text: str, of: Tokens | None = None) -> Caller:
    return asyncio.run((of or tokens()).caller(text))


@pytest.mark.parametrize("algorithm", KEYS)
def test_a_token_of_each_algorithm_names_its_caller(algorithm: str) -> None:
    found = caller(token("commands:listing.sell", "openid", algorithm=algorithm, tenant="acme"))
    assert (found.name, found.claims["tenant"]) == ("user-1", "acme")
    assert found.scopes.allow("commands", "listing.sell")
    assert not found.scopes.allow("commands", "listing.withdraw")
    assert not found.scopes.allow("views", "listings")


def encoded(document: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=").decode()


def unsigned() -> str:
    """`alg: none`, and the claims of a token that is valid."""
    return f"{encoded({'alg': 'none', 'kid': KEYS['EdDSA']})}.{token('operate').split('.')[1]}."


def confused() -> str:
    """Signed with HS256 and the text of the public RSA key, which everybody knows, as the secret."""
    public = private_key(KEYS["RS256"]).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signed = f"{encoded({'alg': 'HS256', 'kid': KEYS['RS256']})}.{token('operate').split('.')[1]}"
    made = base64.urlsafe_b64encode(hmac.digest(public, signed.encode(), hashlib.sha256)).rstrip(b"=").decode()
    return f"{signed}.{made}"


def exchanged() -> str:
    """The header says RS256, and names a key of another algorithm."""
    return token("operate", algorithm="RS256", header={"kid": KEYS["ES256"]})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (lambda: token(exp=int(time.time()) - LEEWAY_S - 1), "expired"),
        (lambda: token(nbf=int(time.time()) + LEEWAY_S + 600), "not valid yet"),
        (lambda: token(iat=int(time.time()) + LEEWAY_S + 600), "not valid yet"),
        (lambda: token(aud="another"), "another audience"),
        (lambda: token(aud=["another", "third"]), "another audience"),
        (lambda: token(iss="https://login.example.com"), "another issuer"),
        (lambda: token(without="exp"), '"exp"'),
        (lambda: token(without="aud"), '"aud"'),
        (lambda: token(without="iss"), '"iss"'),
        (lambda: token(without="sub"), '"sub"'),
        (lambda: token(sub=""), "subject"),
        (lambda: token(sub="a\nb"), "subject"),
        (lambda: token(sub="x" * 256), "subject"),
        (lambda: token(sub="process:order_fulfilment"), "subject"),
        (lambda: token(exp="soon"), "not valid"),
        (lambda: token(exp=10**400), "not valid"),
        (lambda: token(key_id="ed-2"), "names a key"),
        (lambda: token(header={"crit": ["b64"]}), "no JSON Web Token"),
        (lambda: token()[:-6] + "AAAAAA", "signature"),
        (lambda: token(big="x" * MAX_TOKEN_BYTES), "bytes"),
        (lambda: "a.b.c", "no JSON Web Token"),
        (lambda: "..", "no JSON Web Token"),
        (unsigned, "signed with"),
        (confused, "signed with"),
        (exchanged, "not valid"),
    ],
)
def test_a_token_that_is_not_valid_is_refused_with_the_reason_and_without_the_token(text: Any, problem: str) -> None:
    sent = text()
    with pytest.raises(Unauthenticated, match=problem) as refused:
        caller(sent)
    assert sent not in str(refused.value) and sent.split(".")[2][:10] not in str(refused.value).split()
    assert refused.value.challenge.endswith('error="invalid_token"')


def test_clocks_may_differ_a_little() -> None:
    now = int(time.time())
    assert caller(token(exp=now - LEEWAY_S // 2)).name == "user-1"
    assert caller(token(nbf=now + LEEWAY_S - 10, iat=now + LEEWAY_S - 10)).name == "user-1"


def test_a_token_that_was_verified_before_expires_nevertheless(monkeypatch: pytest.MonkeyPatch) -> None:
    of, text, now = tokens(), token(), time.time()
    found = caller(text, of)
    assert of.is_valid(found)
    monkeypatch.setattr(time, "time", lambda: now + 86_400 + LEEWAY_S + 1)
    assert not of.is_valid(found)
    verified: list[str] = []

    def verify(token: str, _: Any) -> dict[str, Any]:
        verified.append(token)
        return {"sub": "again", "exp": 0.0}

    monkeypatch.setattr(of, "_claims", verify)
    assert caller(text, of).name == "again"
    assert verified == [text]


def test_a_verified_token_is_verified_again_once_its_key_is_gone() -> None:
    source = Known()
    of, text = tokens(source), token()
    caller(text, of)
    source.keys = keys_of(jwks(KEYS["RS256"]))
    with pytest.raises(Unauthenticated, match="names a key"):
        caller(text, of)


def test_the_name_of_an_api_key_is_no_subject() -> None:
    with pytest.raises(Unauthenticated, match="API key"):
        caller(token(sub="ci"), tokens(taken="ci"))
    of, text = tokens(), token(sub="ci")
    caller(text, of)
    of._is_taken = lambda name: name == "ci"  # a key of this name was made afterwards
    with pytest.raises(Unauthenticated, match="API key"):
        caller(text, of)


@pytest.mark.parametrize("claims", [{"scp": "views:listings"}, {"scp": ["views:listings", 7]}])
def test_scopes_may_be_in_scp(claims: dict[str, Any]) -> None:
    assert caller(token(**claims)).scopes.allow("views", "listings")


@pytest.mark.parametrize(
    "scope", [7, None, {"views:listings": True}, ["views:listings"], "views:", ":*", "views:*x", "*"]
)
def test_what_is_no_scope_allows_nothing(scope: Any) -> None:
    found = caller(token(scope=scope if not isinstance(scope, list) else {"a": scope})).scopes
    assert not any(found.allow_some(kind) for kind in ("commands", "observations", "views", "streams"))


@pytest.mark.parametrize(
    ("claim", "claims"),
    [
        ("roles", {"roles": ["clerk", "nobody", 7]}),
        ("roles", {"roles": "clerk other"}),
        ("realm_access.roles", {"realm_access": {"roles": ["clerk"]}}),
        ("https://example.com/roles", {"https://example.com/roles": ["clerk"]}),
    ],
)
def test_roles_have_scopes_by_a_file(tmp_path: Path, claim: str, claims: dict[str, Any]) -> None:
    path = tmp_path / "roles.json"
    path.write_text('{"clerk": ["commands:listing.*"]}')
    of = tokens(roles=Roles(path, claim))
    assert caller(token(**claims), of).scopes.allow("commands", "listing.sell")
    assert not caller(token(), of).scopes.allow("commands", "listing.sell")
    assert not caller(token(roles={"clerk": 1}, realm_access=["clerk"]), of).scopes.allow("commands", "listing.sell")


@pytest.mark.parametrize(
    "key",
    [
        {"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", "kid": "h", "alg": "HS256"},
        public_jwk("rsa-1", use="enc"),
        public_jwk("rsa-1", alg="RS512"),
        public_jwk("short-1"),
        {"kty": "RSA", "kid": "x", "n": "AQAB"},
        {"kty": "EC", "crv": "P-999", "kid": "x"},
        public_jwk("ec-1", kid=7),
        "key",
        None,
    ],
)
def test_a_key_that_must_not_sign_is_left_out(key: Any) -> None:
    with pytest.raises(NoKeys):
        keys_of({"keys": [key]})
    assert set(keys_of({"keys": [key, public_jwk("ed-1")]})) == {"ed-1"}


class Issuer:
    """A clock, and what a fetch gives."""

    def __init__(self) -> None:
        self.now_s, self.fetched = 1_000.0, 0
        self.answer: Any = jwks("ed-1")

    def fetch(self) -> IssuerKeys:
        self.fetched += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return keys_of(self.answer)

    def clock(self) -> float:
        return self.now_s

    def keys(self) -> FetchedKeys:
        return FetchedKeys(self.fetch, self.clock)


async def accepted(of: Tokens, text: str) -> bool:
    try:
        await of.caller(text)
    except Unauthenticated:
        return False
    return True


def test_an_unknown_key_is_fetched_once_in_ten_seconds_whatever_arrives() -> None:
    issuer = Issuer()
    of = tokens(issuer.keys())

    async def flood() -> None:
        texts = [token(key_id="ec-9", algorithm="ES256", header={"kid": f"ec-{number}"}) for number in range(50)]
        issuer.now_s += FETCH_S
        assert not any(await asyncio.gather(*(accepted(of, text) for text in texts)))
        assert issuer.fetched == 2  # one of them at the start
        issuer.now_s += FETCH_S - 0.1
        assert not any([await accepted(of, text) for text in texts])
        assert issuer.fetched == 2
        issuer.answer = jwks("ed-1", "ec-1")
        issuer.now_s += 0.1
        assert await accepted(of, token(algorithm="ES256"))
        assert issuer.fetched == 3

    asyncio.run(flood())


@pytest.mark.parametrize(
    "failure", [NoKeys("no answer", passing=True), NoKeys("404"), {"keys": []}, {"keys": [public_jwk("short-1")]}, []]
)
def test_a_failed_fetch_removes_no_key(failure: Any, caplog: pytest.LogCaptureFixture) -> None:
    issuer = Issuer()
    of = tokens(issuer.keys())

    async def outage() -> None:
        issuer.answer = failure
        for _ in range(360):  # an hour
            issuer.now_s += FETCH_S
            assert await accepted(of, token())
            assert not await accepted(of, token(key_id="ed-2"))

    asyncio.run(outage())
    assert issuer.fetched == 361
    assert "stay valid" in caplog.text


def test_keys_are_not_used_after_a_day_without_an_answer() -> None:
    issuer = Issuer()
    of = tokens(issuer.keys())

    async def outage() -> None:
        issuer.answer = NoKeys("no answer", passing=True)
        issuer.now_s += MAX_AGE_S - FETCH_S
        assert await accepted(of, token())
        issuer.now_s += FETCH_S
        with pytest.raises(IssuerUnavailable):
            await of.caller(token())
        issuer.answer = jwks("ed-1")
        issuer.now_s += FETCH_S
        assert await accepted(of, token())

    asyncio.run(outage())


def test_a_key_that_the_issuer_withdraws_is_not_valid_any_more() -> None:
    issuer = Issuer()
    keys = issuer.keys()
    of = tokens(keys)

    async def withdrawn() -> bool:
        assert await accepted(of, token())
        issuer.answer = jwks("ed-2")
        issuer.now_s += 600
        await accepted(of, token())  # begins the fetch, and does not wait for it
        assert keys._fetching is not None
        await keys._fetching
        return await accepted(of, token())

    assert not asyncio.run(withdrawn())


def test_an_issuer_that_does_not_answer_at_the_start_is_asked_later() -> None:
    issuer = Issuer()
    issuer.answer = NoKeys("no answer", passing=True)
    of = tokens(issuer.keys())

    async def later() -> None:
        with pytest.raises(IssuerUnavailable):
            await of.caller(token())
        issuer.answer = jwks("ed-1")
        issuer.now_s += FETCH_S
        assert await accepted(of, token())

    asyncio.run(later())


def test_a_slow_issuer_does_not_hold_up_the_event_loop() -> None:
    import threading

    issuer, release = Issuer(), threading.Event()
    keys = issuer.keys()

    def slow() -> IssuerKeys:
        assert release.wait(240)
        return keys_of(jwks("ed-1", "ed-2"))

    keys._fetch = slow
    of = tokens(keys)

    async def served() -> None:
        issuer.now_s += FETCH_S
        waiting = asyncio.create_task(accepted(of, token(key_id="ed-2")))
        for _ in range(100):  # others are served meanwhile
            await asyncio.sleep(0)
            assert await accepted(of, token())
        assert not waiting.done()
        release.set()
        assert await waiting

    asyncio.run(served())


def test_keys_are_found_by_discovery() -> None:
    with answering() as (url, answers):
        answers.by_path["/.well-known/openid-configuration"] = (200, {"issuer": url, "jwks_uri": f"{url}/keys"})
        answers.by_path["/keys"] = (200, jwks("ed-1"))
        assert set(open_keys(url, "").current()) == {"ed-1"}
        assert answers.requests == ["/.well-known/openid-configuration", "/keys"]
        assert set(open_keys(ISSUER, f"{url}/keys").current()) == {"ed-1"}


@pytest.mark.parametrize(
    ("discovery", "keys", "problem"),
    [
        ((404, {}), (200, {}), "answers 404"),
        ((302, {}), (200, {}), "answers 302"),
        ((200, b"<html>"), (200, {}), "JSON"),
        ((200, {"issuer": "https://evil.example.com"}), (200, {}), "another issuer"),
        ((200, {"issuer": "URL"}), (200, {}), "jwks_uri"),
        ((200, {"issuer": "URL", "jwks_uri": "http://keys.example.com/"}), (200, {}), "https"),
        ((200, {"issuer": "URL", "jwks_uri": "URL/keys"}), (200, {"keys": []}), "no key"),
        ((200, {"issuer": "URL", "jwks_uri": "URL/keys"}), (200, b"[" * 2_000_000), "JSON"),
        ((200, ["issuer"]), (200, {}), "JSON"),
    ],
)
def test_an_issuer_without_keys_is_named_at_the_start(discovery: Any, keys: Any, problem: str) -> None:
    with answering() as (url, answers):
        text = json.dumps(discovery[1]).replace("URL", url) if isinstance(discovery[1], dict) else None
        answers.by_path["/.well-known/openid-configuration"] = (
            discovery[0],
            discovery[1] if text is None else json.loads(text),
        )
        answers.by_path["/keys"] = keys
        with pytest.raises(SettingError, match=f"HEADWATER_API_ISSUER.*{problem}"):
            open_keys(url, "")


def test_keys_in_a_file_are_read_again_and_survive_a_broken_one(tmp_path: Path) -> None:
    path, now = tmp_path / "jwks.json", [0.0]
    path.write_text(json.dumps(jwks("ed-1")))
    keys = FileKeys(path, lambda: now[0])
    path.write_text(json.dumps(jwks("ed-1", "ed-2")))
    now[0] += 2
    assert set(keys.current()) == {"ed-1", "ed-2"}
    for broken in ("", '{"keys": []}'):
        path.write_text(broken)
        now[0] += 2
        assert set(keys.current()) == {"ed-1", "ed-2"}
    path.unlink()
    now[0] += 2
    assert set(keys.current()) == {"ed-1", "ed-2"}
    with pytest.raises(SettingError, match="HEADWATER_API_JWKS"):
        FileKeys(path)


def test_authorities_are_read_once_because_that_holds_up_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    made = ssl.create_default_context

    def counted(*given: Any, **named: Any) -> ssl.SSLContext:
        read.append(given)
        return made(*given, **named)

    monkeypatch.setattr(ssl, "create_default_context", counted)
    with answering() as (url, answers):
        answers.by_path["/keys"] = (200, jwks("ed-1"))
        for _ in range(3):
            assert open_keys(ISSUER, f"{url}/keys").current()
    assert len(read) <= 1
