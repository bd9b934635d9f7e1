"""`replay explain`: the Python source that folds the events of a view, or the SQL of its live query."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from headwater.projections.folding.compiled import compiled
from headwater.projections.folding.decoders import decoders
from headwater.projections.kinds import table_view
from headwater.projections.spark.patch_sql import live_sql
from headwater.replay.deployment import open_deployment
from headwater.replay.output import say


def explain(
    view: Annotated[str, typer.Argument(metavar="VIEW", help="The view.", show_default=False)],
    live: Annotated[bool, typer.Option("--live", help="Show the SQL of the live query instead.")] = False,
) -> None:
    """Show the Python source that a rebuild runs for VIEW if it folds the log in local processes.

    For each event there is a class with the fields that are read, and a function that changes a row. A row is a list of
    the state fields, in the order of the first comment.

    With --live, show what turns each record of the log into patches while the view is kept up to date, as a statement
    of Spark SQL over the columns of Kafka's records. The running query computes this for all views at once.
    """
    with open_deployment(os.environ) as deployment:
        named = deployment.views.view(view)
        if named.has_own_query:
            raise typer.BadParameter(f'"{view}" is a stream view: Spark runs its query, and nothing is compiled')
        declared = table_view(named)
        if live:
            say(live_sql(declared, deployment.settings))
            return
        program = compiled(declared)
        fields = ", ".join(f"{at} {field.name}" for at, field in enumerate(program.fields))
        say(f"# the fields of a row: {fields}\n{decoders([declared]).source}\n\n{program.folding}")
