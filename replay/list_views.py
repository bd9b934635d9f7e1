"""`replay list | generations`: the declared views, and their generations."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

from headwater.projections.errors import GenerationMissing, StoreUnavailable
from headwater.projections.generations.registry.generation import Generation
from headwater.projections.kinds import placeholder_view
from headwater.projections.stores.backend import Size
from headwater.projections.stores.open import open_reader
from headwater.projections.stores.store import Target
from headwater.replay.deployment import Deployment, open_deployment
from headwater.replay.output import AsJson, print_json, show_notes, show_table, size_text
from headwater.replay.view_arguments import ReadAll, Views, check_choice

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
        found = [_sized(deployment, each) for each in registered if not views or each.view in views]
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


def _sized(deployment: Deployment, generation: Generation) -> SizedGeneration:
    target = Target(placeholder_view(generation.view), generation.generation)
    sizes: dict[str, Size | None] = {}
    for name in generation.stores:
        try:
            sizes[name] = open_reader(name, deployment.stores).size(target)
        except (StoreUnavailable, GenerationMissing):
            sizes[name] = None  # show what the registry knows
    return SizedGeneration(generation, sizes)


def _row(each: SizedGeneration) -> tuple[str | int | float | None, ...]:
    one = each.generation
    built, live_since = _minute(one.created_at), _minute(one.live_at) if one.live_at else None
    return (
        one.view, one.generation, one.version, one.state, each.rows, size_text(each.size_bytes),
        built, live_since, one.events, one.seconds, _made_of(one), "yes" if one.published else "no",
    )  # fmt: skip


def _made_of(each: Generation) -> str | None:
    return f"{each.source}, {each.selection or 'all events'}" if each.source else None


def _minute(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%MZ")
