"""`headwater grants`: the accounts and rights that each program of a deployment needs in each server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Final

import typer

from headwater.eventlog.access import commands_of
from headwater.eventlog.programs.command_line import called_as
from headwater.eventlog.programs.logs import log_to_stderr
from headwater.eventlog.settings import LogSettings
from headwater.projections.registry import ViewRegistry
from headwater.projections.settings import StoreSettings
from headwater.projections.stores.declared import STORES
from headwater.projections.stores.open import backend
from headwater.replay.cli import OnlyCommand
from headwater.replay.rules import rules_of
from headwater.replay.topics import Declared

KAFKA: Final = "kafka"
STORES_WITH_ACCOUNTS: Final = tuple(name for name in STORES if backend(name).grants is not None)
SERVERS: Final = (KAFKA, *STORES_WITH_ACCOUNTS)
HEADS: Final[Mapping[str, str]] = {
    KAFKA: "for a shell: KAFKA is a broker's address, KAFKA_ADMIN a file of a client's settings",
    "postgres": "for psql",
    "elasticsearch": "for Kibana's console",
    "valkey": "for valkey-cli",
}
EPILOG: Final = "Settings are environment variables; docs/security.md has the steps, under Least privilege."
For = Annotated[str, typer.Option("--for", metavar="SERVER", help=f"Only for one of {', '.join(SERVERS)}.")]

app = typer.Typer(rich_markup_mode="markdown", pretty_exceptions_enable=False)


@app.command(cls=OnlyCommand, epilog=EPILOG)
def grants(server: For = "") -> None:
    """Print what gives the API, the handler, the read side and the operator the rights that they need, and no others.

    It depends on the modules, and changes nothing. Run it again after a deployment of new views, processes or sources.
    """
    log_to_stderr(os.environ, "grants", default="WARNING")
    if server and server not in SERVERS:
        raise typer.BadParameter(f'unknown server "{server}": use one of {", ".join(SERVERS)}', param_hint="--for")
    settings, stores = LogSettings.from_environment(os.environ), StoreSettings.from_environment(os.environ)
    declared = Declared.load(settings, ViewRegistry.load(settings.modules))
    if server:
        print(statements(server, declared, stores), end="")
        return
    print("\n".join(f"# {each}, {HEADS[each]}\n{statements(each, declared, stores)}" for each in SERVERS), end="")


def statements(server: str, declared: Declared, stores: StoreSettings) -> str:
    """What the tool of a server takes."""
    if server == KAFKA:
        return "".join(f"{line}\n" for line in commands_of(rules_of(declared)))
    of_store = backend(server).grants
    return of_store(stores) if of_store else ""


def main() -> None:
    """Run the command line."""
    typer.main.get_command(app)(prog_name=called_as())
