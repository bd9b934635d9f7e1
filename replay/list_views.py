"""`replay list | generations | explain`: the declared views, their generations, and the code that makes their rows."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC
from typing import Annotated, Any, Final

import typer

from headwater.projections.errors import GenerationMissing, StoreUnavailable
from headwater.projections.generations.registry.generation import Generation
from headwater.projections.kinds import placeholder_view, table_view
from headwater.projections.reading.compiled import compiled
from headwater.projections.reading.program import decoders
from headwater.projections.spark.patch_sql import live_sql
from headwater.projections.stores.backend import Size
from headwater.projections.stores.open import open_reader
from headwater.projections.stores.store import Target
from headwater.replay.deployment import open_deployment
from headwater.replay.output import AsJson, print_json, say, show_notes, show_table, size_text
from headwater.replay.verbs import ReadAll, Views, check_choice


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


COLUMNS: Final = ("view", "gen", "version", "state", "rows", "size", "built")
PLAIN_COLUMNS: Final = ("live since", "offsets", "seconds", "made from", "published")


def list_views(views: Views = None, everything: ReadAll = False, as_json: AsJson = False) -> None:
    """List the views that this code declares: version, key and stores."""
    check_choice(views, everything, reading=True)
    with open_deployment(os.environ) as deployment:
        found = deployment.declared(views).values()
    if as_json:
        print_json(
            [
                {
                    "view": each.name,
                    "version": each.version,
                    "key": each.key_name,
                    "stores": [store.name for store in each.stores],
                    "doc": each.doc,
                }
                for each in found
            ]
        )
        return
    rows = [(each.name, each.version, each.key_name, " ".join(s.name for s in each.stores), each.doc) for each in found]
    show_table(("view", "version", "key", "stores", "description"), rows)


@dataclass(frozen=True)
class SizedGeneration:
    """A generation and its size in each store; None if the store cannot answer."""

    generation: Generation
    sizes: dict[str, Size | None]

    @property
    def rows(self) -> int | None:
        """The number of rows in the first store that answers."""
        return next((each.rows for each in self.sizes.values() if each and each.rows is not None), None)

    @property
    def size_bytes(self) -> int | None:
        """The total size in all stores that answer."""
        known = [each.size_bytes for each in self.sizes.values() if each and each.size_bytes is not None]
        return sum(known) if known else None

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        each = self.generation
        return {
            "view": each.view,
            "generation": each.generation,
            "version": each.version,
            "state": each.state,
            "live": each.state == "live",
            "published": each.published,
            "source": each.source,
            "selection": each.selection,
            "offsets": each.events,
            "seconds": each.seconds,
            "created_at": each.created_at.isoformat(),
            "live_at": each.live_at and each.live_at.isoformat(),
            "rows": self.rows,
            "size_bytes": self.size_bytes,
            "stores": {name: size and asdict(size) for name, size in self.sizes.items()},
        }


def generations(views: Views = None, everything: ReadAll = False, as_json: AsJson = False) -> None:
    """List the generations of each VIEW, including views made with --as: state, time of the build and size.

    `replay rollback` goes back to a retired generation, `replay prune` drops it. The number of rows is an estimate of
    the store; PostgreSQL counts those of small tables.
    """
    check_choice(views, everything, reading=True)
    with open_deployment(os.environ) as deployment:
        deployment.generations.prepare()
        registered = deployment.generations.all()
        deployment.check_known(views, {each.view for each in registered})
        found = []
        for each in registered if not views else [each for each in registered if each.view in views]:
            target = Target(placeholder_view(each.view), each.generation)
            sizes: dict[str, Size | None] = dict.fromkeys(each.stores)  # show at least what the registry knows
            for name in each.stores:
                with suppress(StoreUnavailable, GenerationMissing):
                    sizes[name] = open_reader(name, deployment.stores).size(target)
            found.append(SizedGeneration(each, sizes))
    if as_json:
        print_json([each.to_json() for each in found])
        return
    show_table((*COLUMNS, *PLAIN_COLUMNS), [_row(each) for each in found], plain_only=PLAIN_COLUMNS)
    registered = [each.generation for each in found]
    made = [f"{each.view}@g{each.generation} is made from {_made_of(each)}" for each in registered if each.source]
    unpublished = [
        f"{each.view}: the plain names do not lead to generation {each.generation}; run `replay publish {each.view}`"
        for each in registered
        if each.state == "live" and not each.published
    ]
    show_notes(made + unpublished)


def _row(each: SizedGeneration) -> tuple[str | int | float | None, ...]:
    one = each.generation
    times = [f"{at.astimezone(UTC):%Y-%m-%d %H:%MZ}" if at else None for at in (one.created_at, one.live_at)]
    return (
        one.view, one.generation, one.version, one.state, each.rows, size_text(each.size_bytes),
        *times, one.events, one.seconds, _made_of(one), "yes" if one.published else "no",
    )  # fmt: skip


def _made_of(each: Generation) -> str | None:
    return f"{each.source}, {each.selection or 'all events'}" if each.source else None
