"""`headwater create`: the topics and tables of a deployment, by a user who may create them."""

from __future__ import annotations

import os
from typing import Final

import typer

from eventlog.audit.commands import AuditedCommand
from eventlog.kafka.admin import missing_topics, prepare
from eventlog.programs.command_line import called_as
from eventlog.programs.logs import log_to_stderr
from replay.cli import OnlyCommand
from replay.deployment import open_deployment
from replay.output import say
from replay.topics import Declared

EPILOG: Final = "Settings are environment variables; docs/security.md says when it is needed, under Least privilege."

app = typer.Typer(rich_markup_mode="markdown", pretty_exceptions_enable=False)


class Create(OnlyCommand, AuditedCommand):
    """The command, which is recorded in the audit log that it creates."""

    program = "create"


@app.command(cls=Create, epilog=EPILOG)
def create() -> None:
    """Create the topics and tables that are missing, and check the topics that there are.

    Needed once per deployment, and for new processes, sources and views, if the programs themselves must not create
    topics. It may be repeated.
    """
    log_to_stderr(os.environ, "create", default="WARNING")
    with open_deployment(os.environ) as deployment:
        topics = Declared.load(deployment.settings, deployment.views).topics
        missing = missing_topics(deployment.settings, topics)
        prepare(deployment.settings, topics)
        deployment.generations.prepare()
    for name in missing:
        say(f"created topic {name}")
    say(f"{len(topics)} topics and the tables of the registry are there")


def main() -> None:
    """Run the command line."""
    typer.main.get_command(app)(prog_name=called_as())
