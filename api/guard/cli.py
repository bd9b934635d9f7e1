"""`headwater keys`: makes, lists and revokes the keys of the API's callers."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer
from rich.console import Console

from headwater.api.guard.keys import KEY, NAME, StoredKey, new_key, now, read_keys, write_keys
from headwater.api.guard.scopes import FORM, declared_names
from headwater.api.settings import KEYS, GuardSettings
from headwater.commands.declaring.observation import ObservationRegistry
from headwater.commands.declaring.registry import CommandRegistry
from headwater.commands.errors import CommandError
from headwater.eventlog.audit.commands import AuditedCommand, AuditedCommands, Refused
from headwater.eventlog.errors import EventLogError, SettingError
from headwater.eventlog.programs.command_line import called_as
from headwater.eventlog.settings import LogSettings
from headwater.projections.errors import ProjectionError
from headwater.projections.registry import ViewRegistry

FAILED_EXIT: Final = 1
DAYS: Final = 365
MAX_DAYS: Final = 3650
MAX_CLAIM_CHARACTERS: Final = 255


class Commands(AuditedCommands):
    """Prints every known error in one line, and exits with code 1."""

    program = "keys"
    works_offline = True

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (EventLogError, CommandError, ProjectionError) as error:
            raise failed(str(error)) from error


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
)


@app.callback()
def start(
    must_record: Annotated[
        bool, typer.Option("--must-record", help="Change nothing if it cannot be recorded in the audit log.")
    ] = False,
) -> None:
    """Make, list and revoke the keys of the API's callers.

    The file is HEADWATER_API_KEYS. It has the digest of each key, never the key. An API that runs takes a change within
    a second.
    """


@app.command("new", cls=AuditedCommand)
def make(
    name: Annotated[str, typer.Option(help="Whose key it is: the actor of everything that is sent with it.")],
    scope: Annotated[list[str], typer.Option(help=f"What it allows: {FORM}. Repeat it for several.")],
    days: Annotated[int, typer.Option(min=1, max=MAX_DAYS, help="After how many days it expires.")] = DAYS,
    never_expires: Annotated[bool, typer.Option("--never-expires", help="It is valid until it is revoked.")] = False,
    claim: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="For fields that the API fills with a claim.")
    ] = None,
) -> None:
    """Make a key, and print it: it cannot be shown again."""
    if NAME.fullmatch(name) is None:
        raise failed(f'"{name}" is no name of a key: use lower-case letters, digits, ".", "_" and "-", at most 63')
    claims = dict(_claim(option) for option in claim or ())
    modules = LogSettings.from_environment(os.environ).modules
    declared = declared_names(
        CommandRegistry.load(modules), ObservationRegistry.load(modules), ViewRegistry.load(modules).views
    )
    for problem in (problem for scope_name in scope if (problem := declared.problem(scope_name)) is not None):
        raise failed(problem)
    path = _path()
    with _locked(path):
        keys = read_keys(path) if path.exists() else {}
        created_at = now()
        expires_at = None if never_expires else created_at + timedelta(days=days)
        key, stored = new_key(name, list(dict.fromkeys(scope)), created_at, expires_at, claims)
        write_keys(path, [*keys.values(), stored])
    note(f"key {stored.id} of {name}, {_until(stored)}: keep it now, it cannot be shown again")
    print(key)


@app.command("list")
def show(json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False) -> None:
    """List all keys: their ids, names, scopes, and whether they are valid."""
    at = now()
    for key in read_keys(_path()).values():
        if json:
            shown = msgspec.to_builtins(key) | {"state": key.state(at)}
            del shown["sha256"]
            print(msgspec.json.encode(shown).decode())
        else:
            print(f"{key.id}  {key.state(at):8}{key.name}  {' '.join(key.scopes)}  {_until(key)}")


@app.command(cls=AuditedCommand)
def revoke(
    key: Annotated[str, typer.Argument(metavar="ID|NAME", help="The id of a key, or the name of its only key.")],
) -> None:
    """Revoke a key: it is not valid any more, and stays in the list."""
    path, at = _path(), now()
    if key_match := KEY.fullmatch(key):
        key = key_match[1]  # no error repeats a key
    with _locked(path):
        keys = read_keys(path)
        active = [
            api_key for api_key in keys.values() if key in (api_key.id, api_key.name) and api_key.revoked_at is None
        ]
        if not active:
            raise failed(f'there is no key "{key}" to revoke: see `headwater keys list`')
        if len(active) > 1:
            raise failed(f'"{key}" has several keys: name one of {", ".join(api_key.id for api_key in active)}')
        (revoked,) = active
        replaced = msgspec.structs.replace(revoked, revoked_at=at)
        write_keys(path, [replaced if api_key is revoked else api_key for api_key in keys.values()])
    note(f"revoked key {revoked.id} of {revoked.name}")


def main() -> None:
    """Run the command line."""
    app(prog_name=called_as() or "python -m headwater.api.guard")


def failed(text: str) -> typer.Exit:
    """Print an error in one line; returns the exit to raise."""
    note(f"keys: {text}", style="red")
    return Refused(text, FAILED_EXIT)


def note(text: str, style: str | None = None) -> None:
    """Print one line on standard error without wrapping."""
    Console(stderr=True, highlight=False, markup=False, emoji=False).print(text, style=style, soft_wrap=True)


def _path() -> Path:
    given = GuardSettings.read(os.environ).keys
    if given is None:
        raise SettingError(KEYS, "", "the file of API keys, such as /etc/headwater/keys.json")
    return given


def _claim(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value) or name == "sub" or len(text) > MAX_CLAIM_CHARACTERS or not text.isprintable():
        raise failed(f'"{text}" is no claim: write NAME=VALUE; "sub" is the name of the key')
    return name, value


def _until(key: StoredKey) -> str:
    if key.revoked_at is not None:
        return f"revoked {_day(key.revoked_at)}"
    return "never expires" if key.expires_at is None else f"expires {_day(key.expires_at)}"


def _day(time: datetime) -> str:
    return time.date().isoformat()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """No two commands change the file at once: one would lose the other's key."""
    try:
        folder = os.open(path.parent, os.O_RDONLY)
    except OSError as error:
        needs = f"a file in a folder that exists ({error.strerror or type(error).__name__})"
        raise SettingError(KEYS, str(path), needs) from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


if __name__ == "__main__":
    main()
