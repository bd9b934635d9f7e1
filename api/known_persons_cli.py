"""`headwater person PERSON`: prints what is known about a person, as `GET /persons/{id}` answers it to an operator."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Annotated, Any, Final

import orjson
import typer

from headwater.api.errors import ApiError
from headwater.api.guard.caller import ANYONE
from headwater.api.known_persons import Known, KnownPersons
from headwater.api.served_views import ServedViews
from headwater.api.service import Service, compose_service
from headwater.api.settings import ApiSettings
from headwater.commands.errors import CommandError
from headwater.eventlog.audit.commands import AuditedCommand, Refused
from headwater.eventlog.erasing.person import MAX_PERSON_CHARACTERS
from headwater.eventlog.errors import EventLogError
from headwater.eventlog.programs.command_line import called_as, print_error
from headwater.eventlog.settings import LogSettings
from headwater.projections.errors import ProjectionError
from headwater.projections.settings import StoreSettings

FAILED_EXIT: Final = 1
EVENTS: Final = 100
"""Read at once."""
app = typer.Typer(rich_markup_mode="markdown", pretty_exceptions_enable=False, add_completion=False)


class Command(AuditedCommand):
    """Prints every known error in one line, and exits with code 1."""

    program = "person"

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (EventLogError, CommandError, ProjectionError, ApiError) as error:
            print_error(f"person: {error}")
            raise typer.Exit(FAILED_EXIT) from error


@app.command(cls=Command)
def person(
    person: Annotated[str, typer.Argument(metavar="PERSON", help="The id that `of=` of the fields names.")],
) -> None:
    """Print everything that is known about a person, as one JSON object, for their own request.

    Personal values of other persons are hidden. The audit log has a record of it, without what was found.
    """
    if not person or len(person) > MAX_PERSON_CHARACTERS:
        raise typer.BadParameter(f"PERSON must have 1 to {MAX_PERSON_CHARACTERS} characters")
    log, stores = LogSettings.from_environment(os.environ), StoreSettings.from_environment(os.environ)
    service = compose_service(ApiSettings(log=log, stores=stores))
    if not service.personal.any:
        reason = "no field is personal, so nothing is known by person"
        print_error(f"person: {reason}")
        raise Refused(reason)
    print(orjson.dumps(asyncio.run(everything(service, person))).decode())


async def everything(service: Service, person: str) -> dict[str, Any]:
    """What all pages have, with each row once. Raises KeysUnavailable, and what reading views raises."""
    async with service.opened(False):
        known, pages = KnownPersons(service, ServedViews(service)), list[Known]()
        cursor: str | None = None
        while not pages or cursor is not None:
            pages.append(await known.page(ANYONE, person, EVENTS, cursor, None))
            cursor = pages[-1].next
    return {
        "person": person,
        "events": [orjson.Fragment(event) for page in pages for event in page.events],
        "rows": _rows(pages),
        "observations": [orjson.Fragment(observation) for page in pages for observation in page.observations],
        "left_out": {
            **{kind: sorted({name for page in pages for name in page.left_out[kind]}) for kind in pages[0].left_out},
            "reasons": {name: why for page in pages for name, why in page.reasons.items()},
        },
    }


def _rows(pages: Sequence[Known]) -> dict[str, list[Any]]:
    """By view; of a row that is on several pages, the last."""
    view_rows: dict[str, dict[Any, Any]] = {}
    for page in pages:
        for view, rows in page.rows.items():
            key = page.key_names[view]
            view_rows.setdefault(view, {}).update({row[key]: row for row in rows})
    return {view: list(rows.values()) for view, rows in view_rows.items()}


def main() -> None:
    """Run the command line."""
    app(prog_name=called_as() or "python -m headwater.api.known_persons_cli")


if __name__ == "__main__":
    main()
