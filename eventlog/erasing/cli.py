"""`headwater erase PERSON`: destroys the key of a person, so that nobody can read their personal values any more."""

from __future__ import annotations

import json
import os
from contextlib import closing
from typing import Annotated, Final

import typer

from eventlog.audit.trail import Trail
from eventlog.erasing.person import MAX_PERSON_CHARACTERS, PersonErasure, erase_person, planned
from eventlog.errors import EventLogError
from eventlog.personal.opening import open_keys
from eventlog.programs.command_line import called_as, print_error
from eventlog.settings import LogSettings

FAILED_EXIT: Final = 1

app = typer.Typer(rich_markup_mode="markdown", pretty_exceptions_enable=False, add_completion=False)


@app.command()
def erase(
    person: Annotated[str, typer.Argument(metavar="PERSON", help="The id that `of=` of the fields names.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print which keys would be destroyed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Destroy the key of a person: all sealed values of this person become unreadable, in every copy.

    It cannot be undone. It can be repeated, for example if it was interrupted. The audit log has a record with what was
    found, and what is left until when.
    """
    try:
        if not person or len(person) > MAX_PERSON_CHARACTERS:
            raise typer.BadParameter(f"PERSON must have 1 to {MAX_PERSON_CHARACTERS} characters")
        settings = LogSettings.without_modules(os.environ)
        with closing(open_keys(os.environ, settings.environment)) as keys:
            found = planned(keys, person)
            if not dry_run:
                if not yes and not typer.confirm(f"{_text(found)}\nDestroy them? This cannot be undone.", err=True):
                    raise typer.Exit(FAILED_EXIT)
                found = erase_person(keys, Trail(os.environ).append, person, settings.environment, os.environ)
        print(json.dumps(found.document()) if as_json else _text(found))
    except EventLogError as error:
        print_error(f"erase: {error}")
        raise typer.Exit(FAILED_EXIT) from error


def _text(found: PersonErasure) -> str:
    remains = [] if found.is_dry else found.document()["remains"]
    return "\n".join([f'"{found.person}": {found.summary}', *remains])


def main() -> None:
    """Run the command line."""
    app(prog_name=called_as() or "python -m eventlog.erasing.cli")


if __name__ == "__main__":
    main()
