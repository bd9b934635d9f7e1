"""API keys: `headwater keys`, their file, and who has which."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headwater.api.app import create_app
from headwater.api.errors import Unauthenticated
from headwater.api.guard.guard import Guard
from headwater.api.guard.keys import KEY, ApiKeys, new_key, now, read_keys, write_keys
from headwater.eventlog.errors import SettingError
from tests.unit.api.asgi_client import AppClient
from tests.unit.api.fake_service import fake_service
from tests.unit.api.issuing import bearer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


@pytest.fixture
def keys(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs `headwater keys` with these words, in this process; returns its exit code, output and errors."""
    monkeypatch.setenv("HEADWATER_API_KEYS", str(path))
    monkeypatch.setenv("HEADWATER_MODULES", "listings")

    def run(*words: str) -> tuple[int, str, str]:
        from headwater.api.guard.cli import main

        monkeypatch.setattr(sys, "argv", ["headwater keys", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        shown = capsys.readouterr()
        return int(ended.value.code or 0), shown.out, shown.err

    return run


def test_a_key_is_shown_once_and_stored_as_a_digest(path: Path, keys: Any) -> None:
    earliest_s = now().timestamp()
    code, out, err = keys("new", "--name", "ci", "--scope", "commands:listing.*", "--scope", "views:listings")
    latest_s, key = now().timestamp(), out.strip()
    assert code == 0 and KEY.fullmatch(key) and key not in err
    text = path.read_text()
    assert key not in text and key.split("_", 2)[2] not in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["keys.json"]
    found = ApiKeys(path).caller(key)
    assert (found.name, found.claims) == ("ci", {"sub": "ci"})
    assert found.scopes.allow("commands", "listing.sell") and not found.scopes.allow("views", "city_market")
    assert found.expires_s is not None and earliest_s - 1 <= found.expires_s - 365 * 86_400 <= latest_s + 1


def test_keys_are_listed_without_what_would_let_anybody_in(path: Path, keys: Any) -> None:
    first = keys("new", "--name", "ci", "--scope", "operate", "--days", "7")[1].strip()
    second = keys("new", "--name", "shop", "--scope", "views:*", "--never-expires", "--claim", "tenant=acme")[1].strip()
    code, out, _ = keys("list")
    assert code == 0
    assert re.search(rf"^{first.split('_')[1]}  active  ci  operate  expires \d{{4}}-", out, re.MULTILINE)
    assert re.search(r"shop  views:\*  never expires$", out, re.MULTILINE)
    shown = [json.loads(line) for line in keys("list", "--json")[1].splitlines()]
    assert [(entry["name"], entry["state"]) for entry in shown] == [("ci", "active"), ("shop", "active")]
    for key in (first, second):
        digest = read_keys(path)[key.split("_")[1]].sha256
        assert key.split("_", 2)[2] not in out + str(shown) and digest not in out + str(shown)
    assert ApiKeys(path).caller(second).claims == {"tenant": "acme", "sub": "shop"}


def test_a_revoked_key_is_refused_by_an_api_that_runs(path: Path, keys: Any) -> None:
    seconds = [0.0]
    key = keys("new", "--name", "ci", "--scope", "views:*")[1].strip()
    api_keys = ApiKeys(path, lambda: seconds[0])
    service = replace(fake_service(), guard=Guard(api_keys))
    client = AppClient(create_app(service))
    assert client.get("/views", headers=bearer(key)).status_code == 200
    caller = api_keys.caller(key)
    assert keys("revoke", "ci")[0] == 0
    seconds[0] += 1
    refused = client.get("/views", headers=bearer(key))
    assert (refused.status_code, refused.json()["detail"]) == (401, "the API key is revoked: use a new one")
    assert not api_keys.is_valid(caller)
    assert "revoked" in keys("list")[1]
    code, _, err = keys("revoke", "ci")
    assert code == 1 and "no key" in err
    other = keys("new", "--name", "other", "--scope", "views:*")[1].strip()
    seconds[0] += 1
    assert client.get("/views", headers=bearer(other)).status_code == 200


def test_a_name_with_two_keys_is_revoked_by_id(keys: Any) -> None:
    first, second = (keys("new", "--name", "ci", "--scope", "views:*")[1].split("_")[1] for _ in range(2))
    code, _, err = keys("revoke", "ci")
    assert code == 1 and first in err and second in err
    assert keys("revoke", first)[0] == 0
    assert keys("revoke", "ci")[0] == 0


def test_an_expired_key_is_refused(path: Path) -> None:
    key, stored = new_key("ci", ["views:*"], now() - timedelta(days=2), now() - timedelta(seconds=1), {})
    write_keys(path, [stored])
    with pytest.raises(Unauthenticated, match="expired"):
        ApiKeys(path).caller(key)


@pytest.mark.parametrize("changed", [lambda key: key[:-1], lambda key: f"{key[:-1]}{'A' if key[-1] != 'A' else 'B'}"])
def test_a_wrong_key_is_refused_like_an_unknown_one(path: Path, changed: Any) -> None:
    key, stored = new_key("ci", ["views:*"], now(), None, {})
    unknown, _ = new_key("ci", ["views:*"], now(), None, {})
    write_keys(path, [stored])
    for wrong in (changed(key), unknown, f"hw_{stored.id}_{'A' * 43}", f"hw_{stored.sha256}", "hw_"):
        with pytest.raises(Unauthenticated) as refused:
            ApiKeys(path).caller(wrong)
        assert str(refused.value) == "the API key is not valid"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--name", "ci", "--scope", "commands:listing.sel"), "listing.sel"),
        (("--name", "ci", "--scope", "commands:order.*"), "order"),
        (("--name", "ci", "--scope", "views:streams"), "views:streams"),
        (("--name", "ci", "--scope", "everything"), "everything"),
        (("--name", "CI", "--scope", "operate"), '"CI"'),
        (("--name", "ci\n", "--scope", "operate"), "no name"),
        (("--name", "ci", "--scope", "operate", "--claim", "sub=other"), "sub=other"),
        (("--name", "ci", "--scope", "operate", "--claim", "tenant"), "tenant"),
    ],
)
def test_a_key_that_would_allow_nothing_is_not_made(
    path: Path, keys: Any, words: tuple[str, ...], problem: str
) -> None:
    code, out, err = keys("new", *words)
    assert (code, out) == (1, "") and problem in err
    assert not path.exists()


WRONG = [
    ("", "decode|truncated|empty"),
    ("[]", "object"),
    ('{"keys": [{"id": "x"}]}', "matching|regex|id"),
    ('{"keys": [], "more": 1}', "unknown field"),
    ("\udcff", "."),
]


@pytest.mark.parametrize(("text", "problem"), WRONG)
def test_a_broken_file_is_named(path: Path, text: str, problem: str) -> None:
    path.write_bytes(text.encode(errors="surrogateescape"))
    path.chmod(0o600)
    with pytest.raises(SettingError, match=f"HEADWATER_API_KEYS.*({problem})"):
        ApiKeys(path)


def test_a_file_that_others_may_write_is_refused(path: Path) -> None:
    write_keys(path, [])
    for mode in (0o620, 0o602, 0o666):
        path.chmod(mode)
        with pytest.raises(SettingError, match=r"HEADWATER_API_KEYS.*chmod 600"):
            ApiKeys(path)


def test_a_missing_file_is_named_and_while_it_is_missing_no_key_is_valid(path: Path) -> None:
    with pytest.raises(SettingError, match="HEADWATER_API_KEYS"):
        ApiKeys(path)
    seconds = [0.0]
    key, stored = new_key("ci", ["views:*"], now(), None, {})
    write_keys(path, [stored])
    keys = ApiKeys(path, lambda: seconds[0])
    for break_it in (path.unlink, lambda: path.write_text("{")):
        break_it()
        seconds[0] += 1
        with pytest.raises(Unauthenticated):
            keys.caller(key)
        write_keys(path, [stored])
        seconds[0] += 1
        assert keys.caller(key).name == "ci"


@pytest.mark.programs
def test_commands_side_by_side_lose_no_key(path: Path) -> None:
    script = "import sys\nfrom headwater.api.guard.cli import main\nmain()"
    env = {"HEADWATER_API_KEYS": str(path), "HEADWATER_MODULES": "tests.support.purses", "PATH": "/usr/bin:/bin"}
    env["HEADWATER_KAFKA"] = "127.0.0.1:9"  # nobody's audit log

    def make(number: int) -> int:
        words = ["new", "--name", f"k{number}", "--scope", "operate"]
        return subprocess.run([sys.executable, "-c", script, *words], env=env, capture_output=True).returncode

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(make, range(4))) == [0] * 4
    assert {key.name for key in read_keys(path).values()} == {f"k{number}" for number in range(4)}
