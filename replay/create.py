"""`headwater create`: the topics and tables of a deployment, by a user who may create them."""

from __future__ import annotations

import os
from typing import Any, Final

import typer

from headwater.eventlog.audit.commands import AuditedCommand
from headwater.eventlog.kafka.admin import missing_topics, prepare
from headwater.eventlog.programs.command_line import called_as
from headwater.eventlog.programs.logs import log_to_stderr
from headwater.replay.deployment import open_deployment
from headwater.replay.grants import Declared
from headwater.replay.output import say
from headwater.replay.verbs import complaining

EPILOG: Final = "Settings are environment variables; docs/security.md says when it is needed, under Least privilege."

app = typer.Typer(rich_markup_mode="markdown", pretty_exceptions_enable=False)


class Create(AuditedCommand):
    """The command, which is recorded in the audit log that it creates."""

    program = "create"

    def invoke(self, ctx: Any) -> Any:
        """Invoke it; a mistake in a module or a setting is named before a server is asked for."""
        with complaining(), open_deployment(os.environ):
            return super().invoke(ctx)


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
