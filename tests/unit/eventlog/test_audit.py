"""What operators do is recorded, whoever adds a verb, and however it ends; and `headwater audit` shows it."""

from __future__ import annotations

import importlib
import json
import os
import socket
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner, Result

from headwater.__main__ import PARTS
from headwater.eventlog.audit import cli
from headwater.eventlog.audit import trail as audit_trail
from headwater.eventlog.audit.commands import AuditedCommand, AuditedCommands, Declined, Failed, Refused
from headwater.eventlog.audit.trail import MAX_ITEMS, MAX_TEXT_CHARACTERS, AuditRecord, Trail, hidden
from headwater.eventlog.errors import EventLogError, LogUnavailable, SettingError
from headwater.eventlog.memory import MemoryLog
from headwater.eventlog.ports import Entry
from headwater.eventlog.topics import AUDIT, EVENTS
from headwater.replay import cli as replay
from tests.support.audited import MemoryTrail

NO_ACTIONS = {
    "replay": {"list", "status", "generations", "plan", "explain", "diff", "dead-letters list"},
    "keys": {"list"},
    "sources": {"status", "watch"},
    "master-key": {"make"},  # which nothing stores
    "stack": {"up", "run", "down", "status", "logs", "lock", "prepare"},  # servers on this machine
    "run": {"up", "run", "down", "status", "logs", "lock", "prepare"},
    "up": {"up", "run", "down", "status", "logs", "lock", "prepare"},
    "down": {"up", "run", "down", "status", "logs", "lock", "prepare"},
    "projections": {"prepare", "build", "live", "streams", "load"},  # services, which a supervisor starts
    "status": {""},
    "grants": {""},  # it prints what an operator may run
    "audit": {""},
    "erase": {""},  # it records itself, also if the API runs it
}
"""Verbs that are not recorded, by the command that has them: none of them changes a deployment."""
URGENT = {"sources": {"pause"}}
"""Verbs that are done also if they cannot be recorded."""
PROGRAMS = {"new", "api", "env", "handler", "golden"}
"""Commands without verbs: services, and tools for source code."""


def groups(command: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every group and every verb, with its names."""
    yield names, command
    if isinstance(command, TyperGroup):
        for name, inner in command.commands.items():
            yield from groups(inner, (*names, name))


def command_of(name: str) -> Any:
    """The command line of a part; None if it has no verbs."""
    if name == "replay":
        return typer.main.get_command(replay.app_of())
    app = getattr(importlib.import_module(PARTS[name].module), "app", None)
    return None if app is None else typer.main.get_command(app)


@pytest.mark.parametrize("name", PARTS)
def test_every_verb_is_recorded_or_listed_as_one_that_changes_nothing(name: str) -> None:
    root = command_of(name)
    if root is None:
        assert name in PROGRAMS
        return
    verbs = {" ".join(names): each for names, each in groups(root) if not isinstance(each, TyperGroup)}
    unrecorded = {verb for verb, each in verbs.items() if not isinstance(each, AuditedCommand)}
    assert unrecorded == NO_ACTIONS.get(name, set()), "give a new verb of operators the class AuditedCommand"
    if verbs.keys() > unrecorded:
        assert root.program == name
        assert root.urgent == URGENT.get(name, set())


# A command line


class Oops(Exception):
    """Refuses what was asked for."""


class Tried(AuditedCommands):
    program = "try"
    refusals = (Oops,)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (EventLogError, Oops) as error:
            raise typer.Exit(2 if isinstance(error, Oops) else 1) from error


class Offline(Tried):
    works_offline = True


def test_a_program_that_is_one_verb_is_recorded(trail: MemoryTrail) -> None:
    class Only(AuditedCommand):
        program = "only"

    app = typer.Typer()
    app.command(cls=Only)(raising(typer.Exit(3)))
    assert CliRunner().invoke(app, []).exit_code == 3
    assert [(each.verb, each.outcome) for each in trail.records] == [("only", None), ("only", "failed")]


@pytest.fixture
def trail(monkeypatch: pytest.MonkeyPatch) -> MemoryTrail:
    made = MemoryTrail()
    monkeypatch.setattr("headwater.eventlog.audit.trail.Trail", made)
    for name in ("HEADWATER_ACTOR", "SUDO_USER", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    return made


def play(act: Callable[[], None], *words: str, cls: type[Tried] = Tried) -> Result:
    app = typer.Typer(cls=cls)

    @app.callback()
    def start(must_record: bool = False) -> None: ...

    @app.command(cls=AuditedCommand)
    def do(what: list[str] | None = None, dry_run: bool = False, where: str = "", often: int = 0) -> None:
        act()

    @app.command()
    def look() -> None:
        act()

    inner = typer.Typer()
    inner.command("do", cls=AuditedCommand)(do)
    app.add_typer(inner, name="more")
    return CliRunner().invoke(app, list(words))


def nothing() -> None: ...


def raising(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def test_the_beginning_and_the_end_are_recorded_with_who_what_when_and_from_where(
    trail: MemoryTrail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_ACTOR", "ada")
    monkeypatch.setenv("SUDO_USER", "grace")
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.7 5000 10.0.0.1 22")
    monkeypatch.setenv("HEADWATER_ENVIRONMENT", "shop")
    seen: list[int] = []
    before = datetime.now(UTC)
    assert (
        play(lambda: seen.append(len(trail.stored)), "do", "--what", "a", "--what", "b", "--often", "3").exit_code == 0
    )
    assert seen == [1], "it is recorded before it is done"
    begun, ended = trail.records
    assert begun.phase == "begin" and begun.outcome is None
    assert (ended.phase, ended.outcome, ended.exit_code, ended.reason) == ("end", "done", 0, None)
    for action in (begun, ended):
        assert (action.verb, action.environment, action.action) == ("try do", "shop", begun.action)
        assert action.arguments == {"what": ["a", "b"], "often": 3}
        assert (action.actor, action.sudo_user, action.client) == ("ada", "grace", "10.0.0.7")
        assert action.host == socket.gethostname() and action.user
        assert before <= datetime.fromisoformat(action.begun) <= datetime.fromisoformat(action.time)


def test_verbs_of_inner_groups_are_recorded_and_what_changes_nothing_is_not(trail: MemoryTrail) -> None:
    play(nothing, "look")
    play(nothing, "do", "--dry-run")
    play(nothing, "do", "--help")
    play(nothing, "do", "--nonsense")
    assert trail.records == []
    play(nothing, "more", "do")
    assert [each.verb for each in trail.records] == ["try more do"] * 2


@pytest.mark.parametrize(
    ("error", "outcome", "code", "reason"),
    [
        (typer.Exit(0), "done", 0, None),
        (typer.Exit(3), "failed", 3, None),
        (Failed("listings: no store", 1), "failed", 1, "listings: no store"),
        (SystemExit(0), "done", 0, None),
        (SystemExit("no"), "failed", 1, None),
        (LogUnavailable("reading", "no broker"), "failed", 1, "no broker"),
        (ValueError(""), "failed", 1, "ValueError"),
        (Oops("there is no such stream"), "refused", 2, "there is no such stream"),
        (typer.BadParameter("--as needs a view"), "refused", 2, "--as needs a view"),
        (Declined(), "refused", 1, "not confirmed"),
        (Refused("no such key"), "refused", 1, "no such key"),
        (KeyboardInterrupt(), "interrupted", 130, None),
        (typer.Abort(), "interrupted", 130, None),
    ],
    ids=repr,
)
def test_every_end_is_recorded(
    trail: MemoryTrail, error: BaseException, outcome: str, code: int, reason: str | None
) -> None:
    play(raising(error), "do")
    _, ended = trail.records
    assert (ended.outcome, ended.exit_code) == (outcome, code)
    assert reason is None or reason in (ended.reason or "")


def test_what_cannot_be_recorded_is_not_done(trail: MemoryTrail) -> None:
    trail.fails = {"begin"}
    done: list[int] = []
    assert play(lambda: done.append(1), "do").exit_code == 1
    assert play(lambda: done.append(1), "--must-record", "do", cls=Offline).exit_code == 1
    assert done == []


def test_what_needs_no_kafka_is_done_and_says_that_it_is_not_recorded(trail: MemoryTrail) -> None:
    trail.fails = {"begin"}
    ended = play(nothing, "do", cls=Offline)
    assert ended.exit_code == 0
    assert "audit: try do is not recorded in the audit log" in ended.stderr
    assert trail.records == []


def test_what_stops_something_is_done_in_an_emergency(trail: MemoryTrail) -> None:
    class Urgent(Tried):
        urgent = frozenset({"do"})

    trail.fails = {"begin"}
    done: list[str] = []
    ended = play(lambda: done.append("do"), "do", cls=Urgent)
    assert ended.exit_code == 0 and "audit: try do is not recorded in the audit log" in ended.stderr
    assert play(lambda: done.append("more do"), "more", "do", cls=Urgent).exit_code == 1
    assert done == ["do"]


def test_what_is_done_stays_done_if_its_end_cannot_be_recorded(trail: MemoryTrail) -> None:
    trail.fails = {"end"}
    assert "the end of try do (done) is not recorded" in play(nothing, "do").stderr
    failed = play(raising(typer.Exit(3)), "do")
    assert failed.exit_code == 3 and "(failed) is not recorded" in failed.stderr
    assert {each.phase for each in trail.records} == {"begin"}


def test_a_wrong_actor_is_named_and_nothing_is_done(trail: MemoryTrail, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_ACTOR", "process:me")
    done: list[int] = []
    assert play(lambda: done.append(1), "do").exit_code == 1
    assert done == [] and trail.records == []


KEY = "hw_0123456789abcdef_" + "x" * 43


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (KEY, "hw_0123456789abcdef_…"),
        (f"no key {KEY}!", "no key hw_0123456789abcdef_…!"),
        ("postgresql://me:hush@db/x", "postgresql://…@db/x"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer …"),
        ("eyJhbGciOi.eyJzdWIi.sig", "…"),
        ("password=hush user=me", "password=… user=me"),
        ("SASL_PASSWORD: hush", "SASL_PASSWORD: …"),
        ("postgresql://me:my/hush@db/x failed", "postgresql://…@db/x failed"),
        ("postgresql://me:p@hush@db/x", "postgresql://…@db/x"),
        ('{"database.password": "my hush", "user": "me"}', '{"database.password": …, "user": "me"}'),
        ("connection password='my hush' user=me", "connection password=… user=me"),
        ("ALTER ROLE me PASSWORD 'my hush' LOGIN", "ALTER ROLE me PASSWORD … LOGIN"),
        ("x [type=int, input_value='hush', input_type=str]", "x [type=int, input_type=str]"),
        ("listing/L1", "listing/L1"),
    ],
)
def test_no_secret_is_recorded(trail: MemoryTrail, text: str, shown: str) -> None:
    if "input_value" in text:
        shown = "x [type=int]"
    assert hidden(text) == shown
    play(raising(ValueError(text)), "do", "--where", text, "--what", text)
    for stored in trail.stored:
        assert b"hush" not in stored and KEY.encode() not in stored and b"xxxx" not in stored
    assert trail.records[1].arguments == {"where": shown, "what": [shown]}
    assert trail.records[1].reason == shown


def test_long_and_many_arguments_are_cut(trail: MemoryTrail) -> None:
    play(nothing, "do", "--where", "x" * 100_000, *(word for n in range(200) for word in ("--what", str(n))))
    given = trail.records[0].arguments
    assert len(given["where"]) == MAX_TEXT_CHARACTERS
    assert given["what"][-1] == "and 100 more" and len(given["what"]) == MAX_ITEMS + 1
    play(raising(ValueError("\udcff" + "y" * 10_000_000)), "do", "--where", "\udcff")
    assert max(map(len, trail.stored)) < 20_000


# `headwater keys`


def test_keys_are_recorded_without_the_key(trail: MemoryTrail, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headwater.api.guard.cli import app

    monkeypatch.setenv("HEADWATER_API_KEYS", str(tmp_path / "keys.json"))
    monkeypatch.setenv("HEADWATER_MODULES", "listings")
    made = CliRunner().invoke(app, ["new", "--name", "ci", "--scope", "operate", "--claim", "tenant=acme"])
    key = made.stdout.strip()
    assert CliRunner().invoke(app, ["revoke", key]).exit_code == 0
    assert CliRunner().invoke(app, ["revoke", key]).exit_code == 1
    assert CliRunner().invoke(app, ["list"]).exit_code == 0
    ends = [each for each in trail.records if each.phase == "end"]
    assert [(receipt.verb, receipt.outcome) for receipt in ends] == [
        ("keys new", "done"),
        ("keys revoke", "done"),
        ("keys revoke", "refused"),
    ]
    assert ends[0].arguments == {"name": "ci", "scope": ["operate"], "days": 365, "claim": ["tenant=acme"]}
    assert "there is no key" in (ends[2].reason or "")
    assert all(key.split("_", 2)[2].encode() not in each for each in trail.stored)


def test_keys_work_without_kafka_unless_they_must_be_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headwater.api.guard.cli import app

    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    monkeypatch.setattr("headwater.eventlog.audit.trail.Trail", Trail)
    monkeypatch.setenv("HEADWATER_KAFKA", address)
    monkeypatch.setenv("HEADWATER_API_KEYS", str(tmp_path / "keys.json"))
    monkeypatch.setenv("HEADWATER_MODULES", "listings")
    words = ["new", "--name", "ci", "--scope", "operate"]
    refused = CliRunner().invoke(app, ["--must-record", *words])
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert '"keys new" was not done, because it cannot be recorded' in refused.stderr and address in refused.stderr
    assert not (tmp_path / "keys.json").exists()
    made = CliRunner().invoke(app, words)
    assert made.exit_code == 0 and made.stdout.startswith("hw_")
    assert "audit: keys new is not recorded in the audit log" in made.stderr


class Unanswered:
    """A producer whose broker takes a record, and never says that it has it."""

    def __init__(self, config: object) -> None: ...

    def produce(self, *_: object, **__: object) -> None: ...

    def flush(self, timeout_s: float) -> int:
        return 1


def test_a_record_without_an_answer_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not an error that the command line does not know, which would stop a verb that needs no Kafka."""
    monkeypatch.setattr("headwater.eventlog.kafka.writer.Producer", Unanswered)
    monkeypatch.setattr("headwater.eventlog.audit.trail.missing_topics", lambda *_: [])
    with socket.create_server(("127.0.0.1", 0)) as broker:
        made = Trail({"HEADWATER_KAFKA": f"127.0.0.1:{broker.getsockname()[1]}"})
        with pytest.raises(LogUnavailable, match="no answer for"):
            made.append(DONE)


def test_a_broker_whose_name_is_none_is_not_reached() -> None:
    with pytest.raises(LogUnavailable, match=r"recording an action.*a\.\.b:9092"):
        Trail({"HEADWATER_KAFKA": "a..b:9092"}).append(DONE)


# `headwater audit`


def logged(*records: AuditRecord) -> MemoryLog:
    log = MemoryLog(1)
    for number, each in enumerate(records):
        log.submit(Entry(AUDIT, each.action, each.to_json(), number * 1000), 0)
    return log


def record(action: str, verb: str = "replay erase", **more: Any) -> AuditRecord:
    given = {"phase": "begin", "environment": "shop", "user": "root", "host": "ops-1", **more}
    return AuditRecord(action=action, verb=verb, begun="2026-01-02T03:04:05Z", time="2026-01-02T03:04:05Z", **given)


DONE = record("a", actor="ada", sudo_user="grace", client="10.0.0.7", arguments={"target": "listing/L1", "yes": True})
RECORDS = (
    DONE,
    record("b", "replay rebuild", arguments={"views": ["x", "y"]}),
    DONE.ended("failed", 1, "no handler\nanswered"),
    record("c", "replay erased"),
)


def shown(capsys: pytest.CaptureFixture[str], log: MemoryLog, *filters: Any, as_json: bool = False) -> list[str]:
    cli.show(log, *(filters or ("", "", None)), as_json=as_json)
    return capsys.readouterr().out.splitlines()


def test_an_action_is_shown_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, logged(*RECORDS)) == [
        "2026-01-02T03:04:05Z  ada as root (grace)  ops-1 from 10.0.0.7  replay erase target=listing/L1 yes  failed  "
        "no handler answered",
        "2026-01-02T03:04:05Z  root  ops-1  replay rebuild views=x,y  no end",
        "2026-01-02T03:04:05Z  root  ops-1  replay erased  no end",
    ]
    assert shown(capsys, MemoryLog(1)) == []


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (("replay erase", "", None), "a"),
        (("replay", "", None), "abc"),
        (("erase", "", None), ""),
        (("", "ada", None), "a"),
        (("", "grace", None), "a"),
        (("", "root", None), "abc"),
        (("", "", datetime.fromtimestamp(2, UTC)), "ac"),
    ],
)
def test_actions_are_filtered(capsys: pytest.CaptureFixture[str], filters: tuple[Any, ...], found: str) -> None:
    lines = shown(capsys, logged(*RECORDS), *filters, as_json=True)
    assert "".join(json.loads(line)["action"] for line in lines) == found


def test_the_end_has_all_that_the_beginning_had(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = shown(capsys, logged(*RECORDS), "replay erase", "", datetime.fromtimestamp(2, UTC), as_json=True)
    assert json.loads(line) == {
        **json.loads(DONE.to_json()),
        "phase": "end",
        "time": json.loads(line)["time"],
        "outcome": "failed",
        "exit_code": 1,
        "reason": "no handler\nanswered",
    }


def test_what_cannot_be_read_is_counted_and_hides_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    log = logged(*RECORDS)
    for value in (b"", b"{}", b"\xff", b'{"phase":"maybe"}', None):
        log.submit(Entry(AUDIT, "x", value, 9_000), 0)
    later = json.loads(DONE.to_json()) | {"a_member_of_a_later_release": 1, "action": "d"}
    log.submit(Entry(AUDIT, "d", json.dumps(later).encode(), 9_000), 0)
    cli.show(log, "", "", None, as_json=False)
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 4
    assert "5 records cannot be read" in err


def test_a_record_of_this_release_stays_readable() -> None:
    """The format of what is stored: change it only by adding members."""
    stored = (
        b'{"action":"a","phase":"end","verb":"replay erase","environment":"shop","user":"root","host":"ops-1",'
        b'"begun":"2026-01-02T03:04:05.000000Z","time":"2026-01-02T03:04:06.000000Z","arguments":{"yes":true},'
        b'"actor":"ada","sudo_user":"grace","client":"10.0.0.7","outcome":"done","exit_code":0,"reason":"r"}'
    )
    read = AuditRecord.from_json(stored)
    assert read.to_json() == stored
    assert (read.outcome, read.exit_code, read.arguments) == ("done", 0, {"yes": True})


@pytest.mark.parametrize(("text", "problem"), [("yesterday", "--since"), ("2026-13-01", "--since")])
def test_a_wrong_time_is_named(text: str, problem: str) -> None:
    ended = CliRunner().invoke(cli.app, ["--since", text], env={**os.environ, "NO_COLOR": "1"})
    assert ended.exit_code == 2 and problem in ended.stderr


def test_a_shell_with_another_number_of_partitions_changes_nothing(
    trail: MemoryTrail, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = MemoryLog(partitions=12)
    monkeypatch.setattr(audit_trail, "KafkaLog", lambda _: log)
    shell = Trail({"HEADWATER_PARTITIONS": "4"})
    shell.check_partitions()  # the deployment is not made yet
    log.submit(Entry(EVENTS, "heartbeat/0", b"{}", 0), 0).result()
    with pytest.raises(SettingError, match='HEADWATER_PARTITIONS" is "4": set it to 12, as many as the topic'):
        shell.check_partitions()
    Trail({"HEADWATER_PARTITIONS": "12"}).check_partitions()
    monkeypatch.setattr(log, "stored_ends", unavailable)
    shell.check_partitions()  # an account that may not ask
    done = list[str]()

    class Verbs(AuditedCommands):
        program, urgent = "demo", frozenset({"stop"})

    app = typer.Typer(cls=Verbs)
    app.command("stop", cls=AuditedCommand)(lambda: done.append("stop"))
    app.command("change", cls=AuditedCommand)(lambda: done.append("change"))
    monkeypatch.setattr(trail, "check_partitions", unavailable)
    runner = CliRunner()
    assert runner.invoke(app, ["change"]).exit_code == 1
    assert runner.invoke(app, ["stop"]).exit_code == 0
    assert done == ["stop"]


def unavailable(*_: object) -> None:
    raise LogUnavailable("asking", "no broker")
