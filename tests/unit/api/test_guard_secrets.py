"""Keys and tokens appear in no log, no answer and no error, whatever happens."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from headwater.api.guard.guard import Guard
from headwater.api.guard.keys import ApiKeys, new_key, now, write_keys
from headwater.api.guard.tokens import Roles, Tokens
from headwater.api.limits import Limits
from headwater.api.server.serving import write_access_log
from headwater.api.settings import GuardSettings
from headwater.compose.samples.sample import authorization, open_http
from headwater.eventlog.errors import SettingError
from tests.unit.api.fake_service import fake_service
from tests.unit.api.issuing import AUDIENCE, ISSUER, bearer, token
from tests.unit.api.serving_clients import serving
from tests.unit.api.test_guard_tokens import Known

pytestmark = pytest.mark.programs


@pytest.fixture
def every_log(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> Any:
    """Everything that any logger of this process writes, also the least important."""
    access = logging.getLogger("uvicorn.access")
    before = access.handlers, access.propagate, access.level
    caplog.set_level(logging.DEBUG)

    def read() -> str:
        shown = capsys.readouterr()
        return caplog.text + shown.out + shown.err

    yield read
    access.handlers, access.propagate = before[:2]
    access.setLevel(before[2])


def test_no_log_and_no_answer_has_a_key_or_a_token(tmp_path: Path, every_log: Any) -> None:
    key, stored = new_key("ci", ["views:listings", "commands:*"], now(), None, {})
    write_keys(tmp_path / "keys.json", [stored])
    tokens = Tokens(ISSUER, AUDIENCE, Known(), Roles(None, "roles"))
    service = replace(fake_service(), guard=Guard(ApiKeys(tmp_path / "keys.json"), tokens))
    service.gateway.error = RuntimeError("a bug, whose traceback is logged")
    sent = [key, f"{key[:-1]}x", token("views:*"), token(exp=1), f"{token()[:-4]}AAAA", f"a.b.{key[20:]}"]
    answers = ""
    with serving(service, Limits()) as (_, address):
        write_access_log({})
        url = f"http://127.0.0.1:{address[1]}"
        for each in sent:
            for method, path, body in (
                ("GET", "/views", None),
                ("GET", "/views/listings/L1?wrong=1", None),
                ("POST", "/commands/listing.withdraw", {"listing_id": "L1"}),
                ("POST", "/commands/listing.withdraw", {"listing_id": 1}),
                ("GET", "/streams/$all", None),
            ):
                answer = httpx.request(method, url + path, json=body, headers=bearer(each), trust_env=False)
                answers += answer.text + str(answer.headers)
        answers += httpx.get(f"{url}/views", headers={"authorization": f"Basic {key}"}, trust_env=False).text
    logged = every_log()
    assert "GET /views" in logged and "a bug, whose traceback is logged" in logged
    for each in sent:
        secret = each.rpartition(".")[2][-30:]
        assert len(secret) > 10
        assert secret not in logged and secret not in answers


def test_no_argument_of_a_program_is_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from headwater.api.guard.cli import main

    key, stored = new_key("ci", ["operate"], now(), None, {})
    monkeypatch.setenv("HEADWATER_API_KEYS", str(tmp_path / "keys.json"))
    write_keys(tmp_path / "keys.json", [])
    # who revokes a key by itself, and not by its id, is not shown it again
    monkeypatch.setattr(sys, "argv", ["headwater keys", "revoke", key])
    with pytest.raises(SystemExit):
        main()
    assert stored.id in (shown := capsys.readouterr().err) and key not in shown


def test_a_key_in_place_of_the_file_is_not_shown() -> None:
    key, _ = new_key("ci", ["operate"], now(), None, {})
    with pytest.raises(SettingError, match="HEADWATER_API_KEYS") as refused:
        GuardSettings.from_environment({"HEADWATER_API_KEYS": key})
    assert key not in str(refused.value)


def test_samples_send_the_key_of_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_API_TOKEN", "hw_x")
    assert open_http("http://x").headers["authorization"] == "Bearer hw_x"
    assert authorization({}) == {}
    with pytest.raises(SettingError, match="HEADWATER_API_TOKEN") as refused:
        authorization({"HEADWATER_API_TOKEN": "secret \n"})
    assert "secret" not in str(refused.value)
