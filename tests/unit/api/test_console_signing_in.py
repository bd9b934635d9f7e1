"""Signing in to the console: who has a session, how long, and what no other website can make a browser do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headwater.api.app import create_app
from headwater.api.guard.caller import Caller
from headwater.api.guard.key_file import write_keys
from headwater.api.guard.scopes import Scopes
from headwater.api.guard.sessions import COOKIE, IDLE_S, MAX_OF_CALLER, MAX_SESSIONS, SESSION_S, Sessions, session_id_in
from tests.unit.api.console_world import Browser, guarded_console, open_console, sign_in, token_in

ADA = Caller("ada", Scopes.of(["operate"]))


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


def test_signing_out_ends_the_session_on_the_server(tmp_path: Path) -> None:
    _, browser, key = guarded_console(tmp_path)
    sign_in(browser, key)
    value, token = browser.cookies[COOKIE], token_in(browser.get("/console").text)
    assert browser.post("/console/sign-out", {"token": token}).headers["location"] == "/console/sign-in"
    assert browser.get("/console", headers={"cookie": f"{COOKIE}={value}"}).status_code == 303


def test_signing_in_again_ends_the_session_before(tmp_path: Path) -> None:
    service, browser, key = guarded_console(tmp_path)
    sign_in(browser, key)
    before = browser.cookies[COOKIE]
    sign_in(browser, key)
    assert service.guard.sessions.of(before) is None
    assert service.guard.sessions.of(browser.cookies[COOKIE]) is not None


def test_a_form_of_another_website_is_refused(tmp_path: Path) -> None:
    _, browser, key = guarded_console(tmp_path)
    sign_in(browser, key)
    token = token_in(browser.get("/console").text)
    for headers in (
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://headwater:81"},
    ):
        refused = browser.post("/console/sign-out", {"token": token}, headers)
        assert refused.status_code == 403 and "another website" in refused.text, headers
        assert browser.post("/console/sign-in", {"key": key}, headers).status_code == 403, headers
        assert browser.get("/console").status_code == 200, headers


def test_a_form_without_the_token_of_its_session_is_refused(tmp_path: Path) -> None:
    _, browser, key = guarded_console(tmp_path)
    sign_in(browser, key)
    for fields in ({}, {"token": ""}, {"token": "x"}, {"token": "é"}, {"token": "t" * 43}):
        assert browser.post("/console/sign-out", fields).status_code == 403, fields
        assert browser.get("/console").status_code == 200, fields


def test_the_token_of_another_session_is_refused(tmp_path: Path) -> None:
    service, browser, key = guarded_console(tmp_path)
    other = Browser(browser.app)
    for each in (browser, other):
        sign_in(each, key)
    token = token_in(other.get("/console").text)
    assert browser.post("/console/sign-out", {"token": token}).status_code == 403
    assert service.guard.sessions.of(browser.cookies[COOKIE]) is not None


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


def test_several_workers_have_no_console() -> None:
    service, _ = open_console()
    browser = Browser(create_app(replace(service, workers=2)))
    answer = browser.get("/console")
    assert answer.status_code == 409 and "HEADWATER_API_WORKERS=1" in answer.text


class Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def test_a_session_ends_when_nobody_uses_it_and_at_the_latest_after_hours() -> None:
    clock = Clock()
    made = Sessions(clock)
    idle, used = made.begin(ADA), made.begin(ADA)
    for _ in range(int(SESSION_S // IDLE_S) - 1):
        clock.now_s += IDLE_S - 1
        assert made.of(used) is not None
    assert made.of(idle) is None
    clock.now_s = 1_000 + SESSION_S
    assert made.of(used) is None


def test_sessions_are_bounded_and_no_caller_ends_those_of_others() -> None:
    made = Sessions(Clock())
    other = made.begin(replace(ADA, name="bob"))
    first = made.begin(ADA)
    for _ in range(MAX_OF_CALLER):
        made.begin(ADA)
    assert made.of(first) is None and made.of(other) is not None
    for number in range(MAX_SESSIONS):
        made.begin(replace(ADA, name=str(number)))
    assert len(made._sessions) == MAX_SESSIONS and made.of(other) is None


def test_ids_and_tokens_are_random_and_ids_are_not_kept() -> None:
    made = Sessions(Clock())
    ids = [made.begin(ADA) for _ in range(5)]
    tokens = [each.token for each in made._sessions.values()]
    assert len({*ids, *tokens}) == 10 and all(len(each) >= 43 for each in (*ids, *tokens))
    assert not set(ids) & set(made._sessions)


@pytest.mark.parametrize(
    ("cookies", "found"),
    [
        ([], None),
        (["a=b"], None),
        ([f"{COOKIE}=x"], "x"),
        ([f"a=b; {COOKIE}=x; c=d"], "x"),
        (["a=b", f"{COOKIE}=x"], "x"),
        ([f"{COOKIE}=x; {COOKIE}=y"], None),
        ([f"{COOKIE}="], None),
        ([f"x{COOKIE}=x"], None),
        (["\x00\xff;;;=;"], None),
    ],
)
def test_the_id_in_a_request(cookies: list[str], found: str | None) -> None:
    assert session_id_in([(b"cookie", each.encode("latin-1")) for each in cookies]) == found
