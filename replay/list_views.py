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
        declared = deployment.declared(views).values()
    if as_json:
        print_json(
            [
                {
                    "view": view.name,
                    "version": view.version,
                    "key": view.key_name,
                    "stores": [store.name for store in view.stores],
                    "doc": view.doc,
                }
                for view in declared
            ]
        )
        return
    rows = [
        (view.name, view.version, view.key_name, " ".join(s.name for s in view.stores), view.doc) for view in declared
    ]
    show_table(("view", "version", "key", "stores", "description"), rows)


@dataclass(frozen=True)
class SizedGeneration:
    """A generation and its size in each store; None if the store cannot answer."""

    generation: Generation
    sizes: dict[str, Size | None]

    @property
    def rows(self) -> int | None:
        """The number of rows in the first store that answers."""
        return next((size.rows for size in self.sizes.values() if size and size.rows is not None), None)

    @property
    def size_bytes(self) -> int | None:
        """The total size in all stores that answer."""
        known = [size.size_bytes for size in self.sizes.values() if size and size.size_bytes is not None]
        return sum(known) if known else None

    def to_json(self) -> dict[str, Any]:
        """For `--json`."""
        generation = self.generation
        return {
            "view": generation.view,
            "generation": generation.generation,
            "version": generation.version,
            "state": generation.state,
            "live": generation.state == "live",
            "published": generation.published,
            "source": generation.source,
            "selection": generation.selection,
            "offsets": generation.events,
            "seconds": generation.seconds,
            "created_at": generation.created_at.isoformat(),
            "live_at": generation.live_at and generation.live_at.isoformat(),
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
        deployment.check_known(views, {generation.view for generation in registered})
        listed = []
        for generation in registered if not views else [kept for kept in registered if kept.view in views]:
            target = Target(placeholder_view(generation.view), generation.generation)
            sizes: dict[str, Size | None] = dict.fromkeys(generation.stores)  # show at least what the registry knows
            for name in generation.stores:
                with suppress(StoreUnavailable, GenerationMissing):
                    sizes[name] = open_reader(name, deployment.stores).size(target)
            listed.append(SizedGeneration(generation, sizes))
    if as_json:
        print_json([generation.to_json() for generation in listed])
        return
    show_table((*COLUMNS, *PLAIN_COLUMNS), [_row(generation) for generation in listed], plain_only=PLAIN_COLUMNS)
    registered = [generation.generation for generation in listed]
    made = [
        f"{generation.view}@g{generation.generation} is made from {_made_of(generation)}"
        for generation in registered
        if generation.source
    ]
    unpublished = [
        f"{generation.view}: the aliases do not lead to generation {generation.generation}; "
        f"run `replay publish {generation.view}`"
        for generation in registered
        if generation.state == "live" and not generation.published
    ]
    show_notes(made + unpublished)


def _row(sized: SizedGeneration) -> tuple[str | int | float | None, ...]:
    one = sized.generation
    times = [f"{at.astimezone(UTC):%Y-%m-%d %H:%MZ}" if at else None for at in (one.created_at, one.live_at)]
    return (
        one.view, one.generation, one.version, one.state, sized.rows, size_text(sized.size_bytes),
        *times, one.events, one.seconds, _made_of(one), "yes" if one.published else "no",
    )  # fmt: skip


def _made_of(generation: Generation) -> str | None:
    return f"{generation.source}, {generation.selection or 'all events'}" if generation.source else None
