"""An issuer of tokens in this process: its keys, its JWKS documents, its tokens, and a server of them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from tests.support.served import served

ISSUER: Final = "https://login.example.com/"
AUDIENCE: Final = "headwater"
KEYS: Final = {"RS256": "rsa-1", "ES256": "ec-1", "EdDSA": "ed-1"}
"""The id of the key by algorithm."""


@cache
def private_key(key_id: str) -> Any:
    """A key of the issuer; its id begins with its kind."""
    kind = key_id.partition("-")[0]
    if kind == "rsa":
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)
    if kind == "short":
        return rsa.generate_private_key(public_exponent=65537, key_size=1024)  # noqa: S505 - it must be refused
    return ed25519.Ed25519PrivateKey.generate() if kind == "ed" else ec.generate_private_key(ec.SECP256R1())


def public_jwk(key_id: str, **members: Any) -> dict[str, Any]:
    """The public key as a JWK."""
    public = private_key(key_id).public_key()
    kind = key_id.partition("-")[0]
    writer: Any = {"rsa": RSAAlgorithm, "short": RSAAlgorithm, "ed": OKPAlgorithm, "ec": ECAlgorithm}[kind]
    made: dict[str, Any] = json.loads(writer.to_jwk(public))
    return made | {"kid": key_id, "use": "sig"} | members


def jwks(*key_ids: str) -> dict[str, Any]:
    return {"keys": [public_jwk(id_) for id_ in key_ids or KEYS.values()]}


def token(
    *scopes: str,
    algorithm: str = "EdDSA",
    key_id: str = "",
    header: Mapping[str, Any] | None = None,
    without: str = "",
    **claims: Any,
) -> str:
    """A signed token for the API that is valid for some minutes; without: a claim that it does not have."""
    now = int(time.time())
    kid = key_id or KEYS[algorithm]
    body = {"iss": ISSUER, "aud": AUDIENCE, "sub": "user-1", "iat": now, "exp": now + 86_400, "scope": " ".join(scopes)}
    body |= claims
    body.pop(without, None)
    return jwt.encode(body, private_key(kid), algorithm, {"kid": kid, **(header or {})})


def bearer(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


@dataclass
class Answers:
    """What a server answers by path: a status and a JSON document. requests: the paths that were asked for."""

    by_path: dict[str, tuple[int, Any]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)


@contextmanager
def answering() -> Iterator[tuple[str, Answers]]:
    """The URL of a server, and what it answers."""
    answers = Answers()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answers.requests.append(self.path)
            status, document = answers.by_path.get(self.path, (404, {}))
            body = document if isinstance(document, bytes) else json.dumps(document).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    with served(Handler) as url:
        yield url, answers
