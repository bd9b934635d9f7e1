"""Signing in to the console: who has a session, how long, and what no other website can make a browser do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.api.app import create_app
from headwater.api.errors import Unauthenticated
from headwater.api.guard.caller import Caller
from headwater.api.guard.guard import COOKIE, SESSION_S, Guard
from headwater.api.guard.keys import ApiKeys, new_key, now, write_keys
from headwater.api.guard.scopes import Scopes
from headwater.api.guard.tokens import Tokens
from tests.unit.api.console_world import Browser, guarded_console, open_console, sign_in
from tests.unit.api.issuing import token
from tests.unit.api.test_guard_tokens import tokens


def test_a_browser_without_a_session_is_sent_to_sign_in_and_back(tmp_path: Path) -> None:
    _, browser, key = guarded_console(tmp_path)
    refused = browser.get("/console/streams?stream=listing/L1&version=3")
    assert refused.status_code == 303
    assert refused.headers["location"] == "/console/sign-in?next=/console/streams%3Fstream%3Dlisting/L1%26version%3D3"
    page = browser.get(refused.headers["location"])
    assert page.status_code == 200 and 'value="/console/streams?stream=listing/L1&amp;version=3"' in page.text
    assert "Dead letters" not in page.text
    answer = sign_in(browser, key, next="/console/streams?stream=listing/L1&version=3")
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/streams?stream=listing/L1&version=3")
    assert "listing/L1" in browser.get(answer.headers["location"]).text


def test_the_cookie_is_for_the_console_only_and_has_neither_key_nor_name(tmp_path: Path) -> None:
    _, browser, key = guarded_console(tmp_path)
    cookie = sign_in(browser, key).headers["set-cookie"]
    assert {"httponly", "samesite=strict", "path=/console"} <= set(cookie.lower().split("; "))
    assert key not in cookie and "ada" not in cookie.partition("=")[2].partition(";")[0]
    value = browser.cookies[COOKIE]
    for path in ("/views", "/views/listings", "/streams/listing/L1", "/metrics", "/openapi.json", "/consoles"):
        assert browser.get(path, headers={"cookie": f"{COOKIE}={value}"}).status_code == 401, path


def test_nobody_is_sent_elsewhere_after_signing_in(tmp_path: Path) -> None:
    _, browser, key = guarded_console(tmp_path)
    evil = (
        "https://evil.example",
        "//evil.example",
        "/views",
        "/console/../views",
        "/console\\..",
        "/console\r\nx: y",
        "x",
    )
    assert {wanted: sign_in(browser, key, next=wanted).headers["location"] for wanted in evil} == dict.fromkeys(
        evil, "/console"
    )


def test_a_wrong_key_is_refused_and_not_shown(tmp_path: Path) -> None:
    _, browser, _ = guarded_console(tmp_path)
    for wrong in ("", "nonsense", "hw_0123456789abcdef_" + "x" * 43, "é", "Bearer x", "\x00", "x" * 9_000):
        answer = sign_in(browser, wrong)
        assert answer.status_code == 401 and COOKIE not in browser.cookies, wrong
        assert 'role="alert"' in answer.text and (len(wrong) < 9 or wrong not in answer.text), wrong


def test_a_key_without_operate_is_refused(tmp_path: Path) -> None:
    _, browser, key = guarded_console(tmp_path, "views:*", "streams:*")
    answer = sign_in(browser, key)
    assert answer.status_code == 403 and "operate" in answer.text and COOKIE not in browser.cookies


def test_a_revoked_key_ends_its_sessions(tmp_path: Path) -> None:
    _, browser, key = guarded_console(tmp_path)
    sign_in(browser, key)
    assert browser.get("/console").status_code == 200
    write_keys(tmp_path / "keys.json", [])
    assert browser.get("/console").status_code == 303


def test_signing_out_removes_the_cookie(tmp_path: Path) -> None:
    _, browser, key = guarded_console(tmp_path)
    sign_in(browser, key)
    assert "Sign out ada" in browser.get("/console").text
    assert browser.post("/console/sign-out", {}).headers["location"] == "/console/sign-in"
    assert COOKIE not in browser.cookies and browser.get("/console").status_code == 303


def test_any_pod_with_the_same_session_key_reads_the_cookie_of_another(tmp_path: Path) -> None:
    service, browser, key = guarded_console(tmp_path)

    def pod(session_key: str) -> Browser:
        guard = Guard(ApiKeys(tmp_path / "keys.json"), session_key=session_key)
        return Browser(create_app(replace(service, guard=guard, workers=2)))

    first, second, other = pod("a" * 32), pod("a" * 32), pod("b" * 32)
    sign_in(first, key)
    second.cookies = other.cookies = first.cookies
    assert "Sign out ada" in second.get("/console").text
    assert other.get("/console").status_code == 303
    assert browser.get("/console", headers={"cookie": f"{COOKIE}={first.cookies[COOKIE]}"}).status_code == 303


def test_a_form_of_another_website_is_refused(tmp_path: Path) -> None:
    _, browser, key = guarded_console(tmp_path)
    for headers in (
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://headwater:81"},
    ):
        refused = browser.post("/console/sign-in", {"key": key}, headers)
        assert refused.status_code == 403 and "another website" in refused.text, headers
        assert COOKIE not in browser.cookies, headers


def test_a_form_of_the_console_is_accepted(tmp_path: Path) -> None:
    _, browser, key = guarded_console(tmp_path)
    for headers in (
        {"origin": "http://headwater"},  # no TLS, and another machine
        {"sec-fetch-site": "same-origin", "origin": "https://console.example"},  # a proxy that changes the host
    ):
        assert browser.post("/console/sign-in", {"key": key}, headers).status_code == 303, headers


def test_a_form_that_says_nothing_of_its_website_is_refused(tmp_path: Path) -> None:
    _, browser, key = guarded_console(tmp_path)
    answer = browser.request("POST", "/console/sign-in", data={"key": key})
    assert answer.status_code == 403 and COOKIE not in browser.cookies


def test_behind_a_proxy_with_a_prefix_paths_have_it(tmp_path: Path) -> None:
    service, _, key = guarded_console(tmp_path)
    browser = Browser(create_app(service), root_path="/prefix")
    assert browser.get("/prefix/console").headers["location"].startswith("/prefix/console/sign-in?next=")
    answer = browser.post("/prefix/console/sign-in", {"key": key, "next": "/console/views"})
    assert answer.headers["location"] == "/prefix/console/views"
    assert "Path=/prefix/console;" in answer.headers["set-cookie"] + ";"
    assert 'href="/prefix/console/views"' in browser.get("/prefix/console").text


def test_an_open_api_needs_no_session() -> None:
    _, browser = open_console()
    assert browser.get("/console").status_code == 200
    assert browser.get("/console/sign-in").headers["location"] == "/console"


def open_guard(of: Tokens | None = None, keys: ApiKeys | None = None) -> Guard:
    return Guard(keys, of, session_key="k" * 32)


def test_a_session_ends_after_some_hours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    key, stored = new_key("ada", ["operate"], now(), None, {})
    write_keys(tmp_path / "keys.json", [stored])
    guard = open_guard(keys=ApiKeys(tmp_path / "keys.json"))
    caller = asyncio.run(guard.caller([(b"authorization", f"Bearer {key}".encode())]))
    began_s = time.time() - SESSION_S
    monkeypatch.setattr(time, "time", lambda: began_s + 60)
    assert guard.session(guard.begin_session(caller)) == caller
    monkeypatch.setattr(time, "time", lambda: began_s - 60)
    assert guard.session(guard.begin_session(caller)) is None


def test_the_cookie_of_a_token_has_what_gives_scopes_and_ends_with_it() -> None:
    guard = open_guard(tokens())
    caller = asyncio.run(guard.caller([(b"authorization", f"Bearer {token('operate', email='a@b')}".encode())]))
    cookie = guard.begin_session(caller)
    found = guard.session(cookie)
    assert found is not None and found.scopes == caller.scopes and found.name == caller.name
    assert found.expires_s == caller.expires_s and "email" not in found.claims and guard.is_valid(found)
    assert guard.session(guard.begin_session(replace(caller, expires_s=time.time() - 60))) is None


def test_a_token_whose_scopes_do_not_fit_into_a_cookie_is_refused() -> None:
    guard = open_guard(tokens())
    caller = Caller("ada", Scopes(), time.time() + 60, {"scope": "x" * 4_000})
    with pytest.raises(Unauthenticated, match="cookie"):
        guard.begin_session(caller)


@pytest.mark.parametrize(
    "change", [lambda text: text[:-2], lambda text: f"{text}x", lambda text: text.replace(".", "")]
)
def test_a_changed_cookie_is_none(tmp_path: Path, change: Callable[[str], str]) -> None:
    _, browser, key = guarded_console(tmp_path)
    sign_in(browser, key)
    changed = change(browser.cookies[COOKIE])
    browser.cookies.clear()
    for cookie in (changed, "", "x", "\u00ff"):
        headers = {"cookie": f"{COOKIE}={cookie}".encode("latin-1")}
        assert browser.get("/console", headers=headers).status_code == 303, cookie


@pytest.mark.parametrize(
    "cookie",
    [f"{COOKIE}={{}}", f'other="\\\\\\"{{}}"; {COOKIE}={{}}', f"{COOKIE}x=1;  {COOKIE}={{}};last", f"a;;{COOKIE}={{}}"],
)
def test_a_session_is_found_among_other_cookies(tmp_path: Path, cookie: str) -> None:
    _, browser, key = guarded_console(tmp_path)
    sign_in(browser, key)
    session = browser.cookies[COOKIE]
    browser.cookies.clear()
    assert "Sign out ada" in browser.get("/console", headers={"cookie": cookie.replace("{}", session)}).text


def test_nobody_parses_cookies_with_the_quadratic_parser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(_: str) -> dict[str, str]:
        raise AssertionError("a quoted value of 60 kB would stop the process for a minute")

    monkeypatch.setattr("starlette.requests.cookie_parser", parse)
    _, browser, key = guarded_console(tmp_path)
    sign_in(browser, key)
    quoted = {"cookie": COOKIE + '="' + 30_000 * "\\\\" + '"'}
    for path in ("/console", "/console/sign-in", "/console/nothing", "/views"):
        assert browser.get(path, headers=quoted).status_code in (200, 303, 401), path
    assert "Sign out ada" in browser.get("/console").text


@pytest.mark.parametrize(
    ("headers", "secure"),
    [
        ({"sec-fetch-site": "same-origin", "origin": "https://console.example"}, True),  # behind a proxy with TLS
        ({"origin": "http://headwater"}, False),  # else the browser would not send it back
    ],
)
def test_the_cookie_is_sent_only_with_tls_where_there_is_some(
    tmp_path: Path, headers: dict[str, str], secure: bool
) -> None:
    _, browser, key = guarded_console(tmp_path)
    cookie = browser.post("/console/sign-in", {"key": key}, headers).headers["set-cookie"].lower()
    assert ("secure" in cookie.split("; ")) is secure
