"""`headwater erase PERSON`: destroys the key of a person, so that nobody can read their personal values any more."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import closing
from typing import Annotated, Final

import typer

from headwater.eventlog.audit.logged_keys import LoggedKeys
from headwater.eventlog.audit.trail import Trail
from headwater.eventlog.erasing.person import (
    MAX_PERSON_CHARACTERS,
    InClear,
    PersonErasure,
    brought_back,
    erase_person,
    planned,
)
from headwater.eventlog.errors import EventLogError
from headwater.eventlog.personal.postgres import open_keys
from headwater.eventlog.programs.command_line import called_as, print_error
from headwater.eventlog.settings import LogSettings

FAILED_EXIT: Final = 1
ATTENTION_EXIT: Final = 3

app = typer.Typer(rich_markup_mode="markdown", pretty_exceptions_enable=False, add_completion=False)


@app.command()
def erase(
    context: typer.Context,
    person: Annotated[str, typer.Argument(metavar="PERSON", help="The id that `of=` of the fields names.")] = "",
    restored: Annotated[
        bool,
        typer.Option("--restored", help="Erase everybody again whose destroyed key a restored store of keys has."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print which keys would be destroyed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Destroy the key of a person: all encrypted values of this person become unreadable, in every copy. Columns that
    stores have in plaintext are emptied.

    It cannot be undone. It can be repeated, for example if it was interrupted. The audit log has a record with what was
    found, and what is left until when.

    With `--restored --dry-run`, exit code 3 if a restored store of keys has keys that were destroyed.
    """
    try:
        if restored == bool(person) or len(person) > MAX_PERSON_CHARACTERS:
            raise typer.BadParameter(f"give PERSON, of 1 to {MAX_PERSON_CHARACTERS} characters, or --restored")
        settings, records = LogSettings.without_modules(os.environ), LoggedKeys(os.environ)
        in_clear: InClear | None = context.obj() if context.obj is not None else None
        history = records.read()
        pins = not dry_run or bool(history.stores)  # a look notes no store
        with closing(open_keys(os.environ, settings.environment, records, pins=pins)) as keys:
            persons = brought_back(keys, history) if restored else [person]
            plans = [planned(keys, erased_person, in_clear=in_clear) for erased_person in persons]
            if not dry_run and plans:
                text = "\n".join(map(_text, plans))
                if not yes and not typer.confirm(f"{text}\nDestroy them? This cannot be undone.", err=True):
                    raise typer.Exit(FAILED_EXIT)
                append = Trail(os.environ).append
                plans = [
                    erase_person(keys, append, erased_person, settings.environment, os.environ, in_clear=in_clear)
                    for erased_person in persons
                ]
        for erasure in plans:
            print(json.dumps(erasure.document()) if as_json else _text(erasure))
        if restored and dry_run and plans:
            raise typer.Exit(ATTENTION_EXIT)
    except EventLogError as error:
        print_error(f"erase: {error}")
        raise typer.Exit(FAILED_EXIT) from error


def _text(erasure: PersonErasure) -> str:
    remains = [] if erasure.is_dry else erasure.document()["remains"]
    return "\n".join([f'"{erasure.person}": {erasure.summary}', *remains])


def main(in_clear: Callable[[], InClear | None] | None = None) -> None:
    """Run the command line. in_clear: gives the plaintext columns of the deployment; None: they are not looked at."""
    app(prog_name=called_as(), obj=in_clear)
