"""Nothing is open by mistake: addresses, files and issuers that do not protect the API are refused at the start."""

from __future__ import annotations

import json
import pickle
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trustme

from headwater.api.guard.guard import open_guard
from headwater.api.guard.keys import new_key, now, write_keys
from headwater.api.guard.scopes import Declared, declared_names
from headwater.api.limits import Limits
from headwater.api.server import workers
from headwater.api.settings import ApiSettings, ServerSettings
from headwater.api.tls import TlsFiles
from headwater.eventlog.errors import SettingError
from tests.support.waiting import eventually
from tests.unit.api.fake_service import fake_service
from tests.unit.api.issuing import AUDIENCE, ISSUER, jwks
from tests.unit.api.serving_clients import serving

ANYWHERE = "0.0.0.0"  # noqa: S104 - it is refused


def settings(**variables: str) -> ApiSettings:
    return ApiSettings.from_environment(
        {"HEADWATER_MODULES": "listings"}
        | {f"HEADWATER_API_{name.upper()}": value for name, value in variables.items()}
    )


def declared() -> Declared:
    service = fake_service()
    return declared_names(service.commands, service.observations, service.views)


def start(variables: Mapping[str, str]) -> Any:
    return open_guard(settings(**variables).guard, declared())


@pytest.fixture
def keys(tmp_path: Path) -> str:
    path = tmp_path / "keys.json"
    write_keys(path, [new_key("ci", ["views:*"], now(), None, {})[1]])
    return str(path)


def test_all_processes_of_a_machine_sign_with_the_same_key_and_all_machines_with_that_of_the_setting(keys: str) -> None:
    given = settings(keys=keys, session_key="k" * 32).guard
    made = settings(keys=keys).guard
    assert given.session_key == "k" * 32 and given.session_key not in repr(given)
    assert made.session_key not in {"", settings(keys=keys).guard.session_key}
    assert pickle.loads(pickle.dumps(made)).session_key == made.session_key
    with pytest.raises(SettingError, match="HEADWATER_API_SESSION_KEY") as refused:
        settings(keys=keys, session_key="too short")
    assert "too short" not in str(refused.value)


@pytest.mark.parametrize(
    "host", [ANYWHERE, "::", "10.0.0.1", "api.internal", "[::]", "::ffff:10.0.0.1", "localhost.example.com"]
)
def test_an_address_that_others_reach_is_refused_until_callers_are_known(host: str, keys: str) -> None:
    with pytest.raises(SettingError, match=r"HEADWATER_API_HOST.*HEADWATER_API_KEYS.*HEADWATER_API_OPEN=true"):
        settings(host=host)
    assert settings(host=host, keys=keys).guard.knows_callers
    assert settings(host=host, issuer=ISSUER, audience=AUDIENCE).guard.knows_callers
    assert not settings(host=host, open="true").guard.knows_callers


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost", "LOCALHOST"])
def test_this_machine_alone_needs_nothing(host: str) -> None:
    assert open_guard(settings(host=host).guard, declared()).is_open


def test_a_name_of_this_machine_that_leads_elsewhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ApiSettings(server=ServerSettings.model_construct(host="localhost", port=0))
    create = socket.create_server
    monkeypatch.setattr(socket, "create_server", lambda *_, **more: create((ANYWHERE, 0), **more))
    with pytest.raises(SettingError, match="HEADWATER_API_HOST"):
        workers.listen(made)


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"open": "true", "keys": "KEYS"}, "OPEN"),
        ({"open": "true", "issuer": ISSUER, "audience": AUDIENCE}, "OPEN"),
        ({"open": "yes please"}, "OPEN"),
        ({"issuer": ISSUER}, "AUDIENCE"),
        ({"audience": AUDIENCE}, "AUDIENCE"),
        ({"jwks": "https://login.example.com/keys"}, "JWKS"),
        ({"roles": "/roles.json", "keys": "KEYS"}, "ROLES"),
        ({"issuer": "login.example.com", "audience": AUDIENCE}, "ISSUER"),
        ({"issuer": "http://login.example.com", "audience": AUDIENCE}, "ISSUER"),
        ({"issuer": "https://user:secret@login.example.com", "audience": AUDIENCE}, "ISSUER"),
        ({"issuer": "https://[::1", "audience": AUDIENCE}, "ISSUER"),
        ({"issuer": ISSUER, "audience": AUDIENCE, "jwks": "http://login.example.com/keys"}, "JWKS"),
        ({"issuer": ISSUER, "audience": AUDIENCE, "jwks": "/nothing/jwks.json"}, "JWKS"),
        ({"issuer": ISSUER, "audience": AUDIENCE, "jwks": "JWKS", "roles": "/nothing/roles.json"}, "ROLES"),
        ({"keys": "/nothing/keys.json"}, "KEYS"),
        ({"keys": "/"}, "KEYS"),
        ({"keys": "/dev/null"}, "KEYS"),
        ({"certificate": "/nothing.pem"}, "PRIVATE_KEY"),
        ({"private_key": "/nothing.pem"}, "CERTIFICATE"),
        ({"private_key": "/nothing.pem", "certificate": "/nothing.pem"}, "CERTIFICATE"),
        ({"private_key": "JWKS", "certificate": "JWKS"}, "CERTIFICATE"),
    ],
)
def test_a_wrong_setting_is_named_at_the_start(
    tmp_path: Path, keys: str, variables: dict[str, str], named: str
) -> None:
    (tmp_path / "jwks.json").write_text(json.dumps(jwks("ed-1")))
    files = {"KEYS": keys, "JWKS": str(tmp_path / "jwks.json")}
    with pytest.raises(SettingError, match=f"HEADWATER_API_{named}") as refused:
        start({name: files.get(value, value) for name, value in variables.items()})
    assert refused.value.variable == f"HEADWATER_API_{named}"
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "scope", ["commands:listing.sel", "commands:order.*", "observations:x", "views:x", "streams:x", "x"]
)
def test_a_scope_of_nothing_is_named_at_the_start(tmp_path: Path, keys: str, scope: str) -> None:
    write_keys(Path(keys), [new_key("ci", ["views:*", scope], now(), None, {})[1]])
    with pytest.raises(SettingError, match=f'HEADWATER_API_KEYS.*"ci".*"{scope.replace("*", ".")}"'):
        start({"keys": keys})
    roles, found = tmp_path / "roles.json", tmp_path / "jwks.json"
    roles.write_text(json.dumps({"clerk": [scope]}))
    found.write_text(json.dumps(jwks("ed-1")))
    with pytest.raises(SettingError, match=r'HEADWATER_API_ROLES.*"clerk"'):
        start({"issuer": ISSUER, "audience": AUDIENCE, "jwks": str(found), "roles": str(roles)})


def test_a_scope_may_name_views_that_are_made_later(keys: str) -> None:
    write_keys(Path(keys), [new_key("ci", ["views:reports_*"], now(), None, {})[1]])
    assert not start({"keys": keys}).is_open


def certified(folder: Path, name: str, issuer: trustme.CA) -> TlsFiles:
    """Files with a new certificate."""
    made = issuer.issue_cert(name)
    files = TlsFiles(folder / "certificate.pem", folder / "private_key.pem")
    made.private_key_pem.write_to_path(str(files.private_key))
    files.certificate.write_bytes(b"".join(pem.bytes() for pem in made.cert_chain_pems))
    return files


def test_a_server_speaks_tls_and_takes_a_changed_certificate(tmp_path: Path) -> None:
    issuer = trustme.CA()
    files = certified(tmp_path, "first.example.com", issuer)
    trusted = ssl.create_default_context()
    issuer.configure_trust(trusted)

    def answers_as(address: tuple[str, int], name: str) -> bool:
        with socket.create_connection(address, 20) as plain:
            try:
                with trusted.wrap_socket(plain, server_hostname=name) as client:
                    client.sendall(b"GET /health/live HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
                    return client.recv(1_000).startswith(b"HTTP/1.1 200 ")
            except ssl.SSLCertVerificationError:
                return False

    with serving(fake_service(), Limits(), files) as (server, address):
        assert answers_as(address, "first.example.com")
        with socket.create_connection(address, 20) as plain:
            plain.sendall(b"GET /views HTTP/1.1\r\nhost: x\r\n\r\n")
            assert not plain.recv(1_000).startswith(b"HTTP/")
        certified(tmp_path, "second.example.com", issuer)
        certificate = server._certificate
        assert certificate is not None
        certificate.refresh()
        assert eventually(lambda: answers_as(address, "second.example.com"), "the new certificate is used")
        files.certificate.write_text("nothing")
        certificate.refresh()
        assert answers_as(address, "second.example.com")


def test_a_private_key_with_a_password_is_refused_instead_of_asking_for_it(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    files = certified(tmp_path, "first.example.com", trustme.CA())
    key = load_pem_private_key(files.private_key.read_bytes(), None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    files.private_key.write_bytes(locked)
    with pytest.raises(SettingError, match="without a password"):
        TlsFiles.of(str(files.certificate), str(files.private_key))
