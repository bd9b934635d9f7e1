"""Actions of the console: what runs, for whom, how it is shown, and what nobody can start by mistake or by force."""

from __future__ import annotations

import asyncio
import re
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headwater.api.app import create_app
from headwater.api.console import actions as of_actions
from headwater.api.console.actions import MAX_LINES, MAX_RUNNING, Actions
from headwater.api.console.letters import shape
from headwater.api.errors import Overloaded
from headwater.eventlog.audit.record import AuditRecord
from headwater.eventlog.envelope import encode
from headwater.eventlog.letters import Letter
from headwater.projections.generations.registry.generation import Generation
from headwater.projections.generations.registry.rebuild_progress import RebuildProgress
from tests.support.waiting import eventually
from tests.unit.api.console_world import Browser, Links, guarded_console, open_console, sign_in, token_in, world
from tests.unit.api.fake_service import event, fake_service

ECHO = (
    "import os, sys; print(sys.argv[1:], os.environ.get('HEADWATER_ACTOR')); sys.exit(3 if 'verify' in sys.argv else 0)"
)
WAITS = "import sys, time; print('waits', flush=True); '--dry-run' in sys.argv or time.sleep(600)"


def running(program: str, environ: dict[str, str] | None = None) -> Actions:
    return Actions((sys.executable, "-c", program), environ or {})


def generation(number: int, state: str) -> Generation:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    view = fake_service().views["listings"]
    facts: dict[str, Any] = {"created_at": at, "live_at": at, "stores": ["postgres"], "declaration": [], "read_at": at}
    facts |= {
        "tag": "listings@1",
        "fingerprint": view.fingerprint,
        "bulk_ends": {},
        "patch_starts": {},
        "published": True,
    }
    facts |= {"row_types": view.row_types, "topics": {}, "events": 5, "seconds": 1.0, "source": None, "selection": None}
    return Generation("listings", number, 1, state=state, **facts)


def console(actions: Actions) -> tuple[Any, Browser]:
    service = world()
    service.overseer.built = [generation(1, "retired"), generation(2, "live")]
    service.generations.number = 2
    return service, Browser(create_app(service, actions))


def act(browser: Browser, path: str, **fields: str) -> Any:
    """Send the form of a page as it is there."""
    page = browser.get(path)
    return browser.post(path, {"token": token_in(page.text), **fields})


def test_an_action_shows_its_command_and_what_it_would_do_before_it_is_done() -> None:
    _, browser = console(running(ECHO))
    page = browser.get("/console/views/listings/rebuild").text
    assert "<code>replay rebuild listings</code>" in page
    assert "[&#39;replay&#39;, &#39;rebuild&#39;, &#39;listings&#39;, &#39;--dry-run&#39;]" in page
    assert (
        "Generation 1, made at 2026-01-02 00:00:00 UTC, takes the place of generation 2."
        in browser.get("/console/views/listings/rollback").text
    )
    assert "changes nothing" in browser.get("/console/views/listings/verify").text


def test_a_rollback_without_an_earlier_generation_says_so() -> None:
    service, browser = console(running(ECHO))
    service.overseer.built = [generation(2, "live"), generation(3, "building")]
    assert "no other one is kept" in browser.get("/console/views/listings/rollback").text
    service.overseer.built = [generation(2, "live"), replace(generation(1, "retired"), fingerprint="another")]
    assert "1 (listings@1)) have another declaration" in browser.get("/console/views/listings/rollback").text


@pytest.mark.parametrize(("verb", "ends"), [("rebuild", "Done"), ("verify", "exit code 3"), ("rollback", "Done")])
def test_an_action_runs_the_command_of_its_page_and_its_page_follows_it(verb: str, ends: str) -> None:
    _, browser = console(running(ECHO))
    started = act(browser, f"/console/views/listings/{verb}")
    assert started.status_code == 303
    page = started.headers["location"]
    eventually(lambda: ends in browser.get(page).text, "the action has ended")
    shown = browser.get(page).text
    assert f"[&#39;replay&#39;, &#39;{verb}&#39;, &#39;listings&#39;]" in shown and "data-refresh" not in shown
    assert f"replay {verb} listings" in browser.get("/console/audit").text


def test_the_audit_log_learns_who_it_was(tmp_path: Path) -> None:
    service, _, key = guarded_console(tmp_path)
    browser = Browser(create_app(service, running(ECHO, {"HEADWATER_ACTOR": "somebody else"})))
    sign_in(browser, key)
    page = act(browser, "/console/views/listings/verify").headers["location"]
    eventually(lambda: "exit code" in browser.get(page).text, "the action has ended")
    assert "started by ada" in browser.get(page).text and "] ada" in browser.get(page).text


def test_a_running_action_shows_its_progress_and_ends_with_the_api() -> None:
    actions = running(WAITS)
    service, browser = console(actions)
    page = act(browser, "/console/views/listings/rebuild").headers["location"]
    service.overseer.running = [RebuildProgress("listings", "bulk", 500, 2000, 0.0)]
    eventually(lambda: "waits" in browser.get(page).text, "the command writes")
    shown = browser.get(page).text
    assert "Running since" in shown and 'data-refresh="1"' in shown and "500 of 2,000" in shown
    asyncio.run(actions.close())
    eventually(lambda: actions.all[0].exit_code == -15, "the command was ended")


def test_actions_output_and_what_is_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    actions = running(f"print('x\\n' * {MAX_LINES * 3} + 'y' * 10_000)")
    done = actions.start(["replay"], None)
    eventually(lambda: done.exit_code == 0, "it has ended")
    assert len(done.lines) == MAX_LINES and max(map(len, done.lines)) <= of_actions.MAX_LINE_CHARACTERS
    monkeypatch.setattr(of_actions, "MAX_KEPT", 1)
    last = actions.start(["replay"], None)
    assert [each.id for each in actions.all] == [last.id] and actions.get(done.id) is None
    eventually(lambda: last.exit_code == 0, "it has ended")


def test_only_some_run_at_once() -> None:
    actions = running(WAITS)
    for _ in range(MAX_RUNNING):
        actions.start(["replay"], None)
    with pytest.raises(Overloaded):
        actions.start(["replay"], None)
    _, browser = console(actions)
    assert act(browser, "/console/views/listings/verify").status_code == 503
    asyncio.run(actions.close())


def test_without_replay_the_command_is_shown_and_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_actions, "NEEDED", ("nothing_of_this_name",))
    actions = running(ECHO)
    _, browser = console(actions)
    page = browser.get("/console/views/listings/rebuild").text
    assert (
        "<code>replay rebuild listings</code>" in page and "nothing_of_this_name" in page and "<form method" not in page
    )
    answer = browser.post("/console/views/listings/rebuild", {"token": "x"})
    assert answer.status_code == 403 and not actions.all


@pytest.mark.parametrize("path", ["/console/views/listings/rebuild", "/console/letters"])
@pytest.mark.parametrize("forged", ["token", "site", "origin"])
def test_another_website_starts_nothing(path: str, forged: str) -> None:
    actions = running(ECHO)
    service, browser = console(actions)
    service.overseer.waiting = {"events/0/1": letter()}
    token = token_in(browser.get("/console/views/listings/rebuild").text)
    headers = {"site": {"sec-fetch-site": "cross-site"}, "origin": {"origin": "https://evil.example"}}.get(forged)
    fields = {"key": "events/0/1", "token": "" if forged == "token" else token}
    assert browser.post(path, fields, headers).status_code == 403
    assert not actions.all


def test_a_get_starts_nothing_but_a_dry_run() -> None:
    actions = running(ECHO)
    _, browser = console(actions)
    for verb in ("rebuild", "verify", "rollback"):
        assert browser.get(f"/console/views/listings/{verb}").status_code == 200
    assert not actions.all


def test_views_that_do_not_exist_or_never_change_have_no_actions() -> None:
    actions = running(ECHO)
    _, browser = console(actions)
    token = token_in(browser.get("/console/views/listings/rebuild").text)
    for name in ("nothing", "--all", "-h"):
        assert browser.post(f"/console/views/{name}/rebuild", {"token": token}).status_code == 404
    assert not actions.all


def letter(reason: str = "it lacks a field", **data: Any) -> Letter:
    record = encode(event("listing/L1", 2, "listing.sold", **(data or {"secret": "4111 1111", "count": 42})))
    return Letter(reason, "2026-01-02T03:04:05Z", b"listing/L1/2", record)


def test_letters_are_grouped_and_their_values_are_hidden() -> None:
    service, browser = open_console()
    service.overseer.waiting = {
        "events/0/1": letter(),
        "events/0/2": letter("<b>bold</b>"),
        "commands/1/9": Letter("it raised", "2026-01-02T03:04:05Z", b"k", b'{"no": "envelope 4111 1111"}'),
        "patches/0/1-5": Letter("deleted", "", None, None),
        "events/0/3": Letter("no JSON", "", None, b"\xff4111"),
    }
    answer = browser.get("/console/letters")
    text = answer.text
    assert "Unreadable event: 3" in text and "Unreadable command: 1" in text and "Deleted unread: 1" in text
    assert "4111" not in text and ": 42" not in text and "&#34;secret&#34;: &#34;text of 9 characters&#34;" in text
    assert "&lt;b&gt;bold" in text and "b" not in Links(text).tags
    assert "replay dead-letters retry events/0/1" in text and "retry one only if its client" in text
    assert "dead-letters retry patches/0/1-5" not in text


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"key": "events/0/1"}, ["events/0/1"]),
        ({"key": "--all"}, ["--all"]),  # the key of a letter, and not the option
        ({"cause": "unreadable event"}, ["events/0/1", "events/0/2"]),
    ],
)
def test_one_letter_or_those_of_a_cause_are_retried(fields: dict[str, str], words: list[str]) -> None:
    actions = running(ECHO)
    service, browser = console(actions)
    service.overseer.waiting = dict.fromkeys(("events/0/1", "events/0/2", "commands/0/1", "--all"), letter())
    answer = act(browser, "/console/letters", **fields)
    assert answer.status_code == 303
    assert list(actions.all[0].words) == ["replay", "dead-letters", "retry", "--", *words]


def test_a_letter_that_is_gone_is_not_retried() -> None:
    actions = running(ECHO)
    service, browser = console(actions)
    service.overseer.waiting = {"events/0/1": letter()}
    for fields in ({"key": "events/0/2"}, {"key": "--all"}, {"cause": "other"}, {}):
        assert act(browser, "/console/letters", **fields).status_code == 422
    assert not actions.all


def test_a_shape_is_bounded() -> None:
    deep: Any = 1
    for _ in range(50):
        deep = {"a": [deep]}
    assert len(str(shape({str(each): deep for each in range(1_000)}))) < 40_000


def test_what_operators_did_is_listed() -> None:
    service, browser = open_console()
    record = AuditRecord.begin("replay erase", {"stream": "<script>"}, "t", {"HEADWATER_ACTOR": "ada"})
    service.overseer.records = [record, replace_record(record)]
    text = browser.get("/console/audit").text
    assert "replay erase" in text and "&lt;script&gt;" in text and "no end" in text and "refused" in text
    assert re.search(r"ada <span class=\"state\">as ", text)


def replace_record(record: AuditRecord) -> AuditRecord:
    return record.ended("refused", 2, "it is not there")


def test_a_program_with_a_key_needs_no_token(tmp_path: Path) -> None:
    service, _, key = guarded_console(tmp_path)
    actions = running(ECHO)
    browser = Browser(create_app(replace(service), actions))
    answer = browser.post("/console/views/listings/verify", {}, {"authorization": f"Bearer {key}"})
    assert answer.status_code == 303 and actions.all[0].actor == "ada"
    eventually(lambda: actions.all[0].exit_code is not None, "it has ended")
