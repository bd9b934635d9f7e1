"""docs/security.md: each step that it shows works, one after another."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme

from headwater.api.guard.caller import readable
from headwater.api.guard.guard import open_guard
from headwater.api.guard.scopes import declared_names
from headwater.api.limits import Limits
from headwater.api.settings import ApiSettings
from headwater.commands.declaring.filled_fields import filled_fields
from tests.support.pages import blocks, names_of, read_page, section
from tests.unit.api.fake_service import MODULES, catch_up, fake_service
from tests.unit.api.issuing import ISSUER, bearer, jwks, token
from tests.unit.api.serving_clients import serving
from tests.unit.api.test_guard_settings import certified

pytestmark = pytest.mark.programs

PAGE = read_page("security.md")


def commands(heading: str) -> list[str]:
    """The commands under a heading, in their order."""
    return blocks("bash", section(PAGE, heading))


class Shell:
    """Runs commands one after another: each sees the variables that those before it exported."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        programs = Path(sys.executable).parent
        self.env = {"PATH": f"{programs}:{os.environ['PATH']}", "HEADWATER_MODULES": "listings", "NO_COLOR": "1"}
        self.env["HEADWATER_KAFKA"] = "127.0.0.1:9"  # nobody's audit log

    def run(self, commands: str) -> str:
        script = f"set -euo pipefail\n{commands}\nenv -0 > {self.folder}/.env"
        ended = subprocess.run(
            ["bash", "-c", script], cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=120
        )
        assert ended.returncode == 0, ended.stderr
        pairs = (record.partition("=") for record in (self.folder / ".env").read_text().split("\0") if record)
        self.env = {name: value for name, _, value in pairs}
        return ended.stdout

    def settings(self, **more: str) -> ApiSettings:
        return ApiSettings.from_environment(self.env | more)


@contextmanager
def answering(settings: ApiSettings, modules: Sequence[str] = MODULES) -> Any:
    """An API of a service without servers, with these settings."""
    service = fake_service(modules=modules)
    guard = open_guard(settings.guard, declared_names(service.commands, service.observations, service.views))
    guarded = replace(service, guard=guard)
    catch_up(guarded)
    with serving(guarded, Limits(), settings.tls) as (_, address):
        yield f"{address[0]}:{address[1]}"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_api_keys(shell: Shell) -> None:
    make, call, revoke = commands("API keys")
    assert "  active  ci  commands:listing.* views:listings  expires " in shell.run(make)
    assert "$HEADWATER_API_TOKEN" in call
    with answering(shell.settings()) as address:
        here = call.replace("127.0.0.1:18080", address)
        assert json.loads(shell.run(here)) == {"rows": [], "next": None, "links": {}}
        without = here.replace("Bearer $HEADWATER_API_TOKEN", "Bearer hw_x")
        assert json.loads(shell.run(without))["type"] == "urn:headwater:problem:unauthenticated"
        shell.run(revoke)
    assert "  revoked ci  " in shell.run("headwater keys list")


def test_tokens_of_an_issuer(shell: Shell) -> None:
    issuer, roles = commands("Tokens of an issuer")
    shell.run(issuer + roles)
    assert shell.env["HEADWATER_API_ISSUER"] == ISSUER
    (shell.folder / "jwks.json").write_text(json.dumps(jwks()))
    settings = shell.settings(HEADWATER_API_JWKS=str(shell.folder / "jwks.json"))
    with answering(settings) as address:
        for text, status in (
            (token("views:listings"), 200),
            (token(realm_access={"roles": ["clerk"]}), 200),
            (token(realm_access={"roles": ["guest"]}), 403),
            (token("views:listings", aud="another"), 401),
        ):
            assert status_of(f"http://{address}/views/listings", bearer(text)) == status


def status_of(url: str, headers: Mapping[str, str], verify: Any = True) -> int:
    import httpx

    return httpx.get(url, headers=dict(headers), trust_env=False, verify=verify).status_code


def test_tls(shell: Shell) -> None:
    import ssl

    issuer = trustme.CA()
    certified(shell.folder, "127.0.0.1", issuer)
    shell.run("".join(commands("TLS")))
    trusted = ssl.create_default_context()
    issuer.configure_trust(trusted)
    with answering(shell.settings()) as address:
        assert status_of(f"https://{address}/health/live", {}, trusted) == 200


def test_another_address(shell: Shell) -> None:
    (listen,) = commands("Listen on another address")
    shell.run(listen + commands("API keys")[0])
    settings = shell.settings()
    assert settings.server.host == "0.0.0.0"  # noqa: S104
    assert settings.hosts.has("api.example.com") and not settings.hosts.has("other.example.com")


def test_limits_per_caller(shell: Shell) -> None:
    (limits,) = commands("Limits per caller")
    shell.run(limits + commands("API keys")[0])
    given = shell.settings().guard
    assert (given.caller_per_second, given.caller_at_once) == (100, 20)


def test_tenants(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    module = "tenants_page"
    (shell.folder / f"{module}.py").write_text(code("Tenants"))
    monkeypatch.syspath_prepend(shell.folder)
    shell.env |= {"HEADWATER_API_KEYS": "keys.json", "HEADWATER_MODULES": module, "PYTHONPATH": "."}
    (make,) = commands("Tenants")
    acme, other = shell.run(make).split()
    shell.env["HEADWATER_API_KEYS"] = str(shell.folder / "keys.json")
    with answering(shell.settings(), (module,)) as address:

        def ask(method: str, path: str, key: str, **more: Any) -> tuple[int, Any]:
            import httpx

            headers = {"authorization": f"Bearer {key}"}
            url = path if path.startswith("http") else f"http://{address}{path}"
            answer = httpx.request(method, url, headers=headers, trust_env=False, **more)
            return answer.status_code, answer.json()

        for key, tenant in ((acme, "acme"), (other, "other")):
            status, sent = ask("POST", "/commands/account.open", key, json={"account_id": "A1"})
            assert (status, sent["stream"]) == (201, f"account/{tenant}/A1")
            stranger = acme if key == other else other
            assert ask("GET", sent["links"]["receipt"], stranger)[0] == 404
            assert ask("GET", sent["links"]["stream"], stranger)[1]["type"].endswith(":stream_missing")
            assert ask("GET", "/receipts/c-1", key)[0] == 422
            assert ask("GET", "/streams/$all", key)[0] == 403
            assert ask("GET", "/views/accounts", key) == (200, {"rows": [], "next": None, "links": {}})
        assert ask("POST", "/commands/account.open", acme, json={"account_id": "A1", "tenant": "other"})[0] == 422


def test_every_block_is_run() -> None:
    headings = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    run = {"API keys", "Tokens of an issuer", "Tenants", "Limits per caller", "TLS", "Listen on another address"}
    assert {heading for heading in headings if commands(heading)} == run


def test_filled_fields() -> None:
    found = declared("Fields that clients cannot forge")
    assert filled_fields(found["Open"]) == ({"owner": "sub"}, ("at",))


def test_rows_for_their_readers() -> None:
    (condition,) = readable(declared("Rows for their readers")["accounts"], {"sub": "user-1"})
    assert (condition.column, condition.values) == ("owner", ("user-1",))


def declared(heading: str) -> dict[str, Any]:
    """The names of the Python code under a heading."""
    return names_of(code(heading))


def code(heading: str) -> str:
    """The Python code under a heading."""
    (only,) = blocks("python", section(PAGE, heading))
    return only
