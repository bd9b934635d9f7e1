"""`replay row VIEW KEY`: fold one row again from the log, compare it with each store, and replace it."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Final

import typer

from headwater.commands.declaring.registry import CommandRegistry
from headwater.projections.folding.row_changes import Row, shown_row, streams_of_row
from headwater.projections.generations.rebuild.rebuild import Step
from headwater.projections.generations.rebuild.single_rows import FoldedRow, RowFolder
from headwater.projections.generations.registry.generation import paused_text
from headwater.projections.stores.open import backend
from headwater.projections.stores.store import Target
from headwater.projections.view import View
from headwater.replay.deployment import Deployment, live_generation, open_deployment
from headwater.replay.errors import CannotFoldRow
from headwater.replay.output import AsJson, print_json, say, show_table
from headwater.replay.verbs import OnStep, steps

DIFFERENT_EXIT: Final = 3
SAID: Final = {
    "equal": "as the log says",
    "differs": "differs from the log",
    "replaced": "replaced by what the log says",
    "undecided": "undecided, because it kept changing: try again when it has fewer changes",
}


def row(
    view: Annotated[str, typer.Argument(metavar="VIEW", help="The view.", show_default=False)],
    key: Annotated[str, typer.Argument(metavar="KEY", help="The key of the row.", show_default=False)],
    store: Annotated[list[str] | None, typer.Option(help="Only in this store; may be repeated.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run/--write", help="Only compare, or replace the row where it differs.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Fold the row with this KEY again from the log, and show how it differs in each store. Exit code 3: it differs.

    With --write, it is replaced in every store in which it differs, without a rebuild of the view; then the exit code
    is 0. Queries and live updates continue, and events that come meanwhile are neither lost nor applied twice.

    If the key tells which streams have the row's events, only these are read, else the whole log.
    """
    with open_deployment(os.environ) as deployment:
        declared = deployment.views.view(view)
        known = [target.name for target in declared.stores]
        for name in store or ():
            if name not in known:
                raise typer.BadParameter(f'"{view}" is not in a store "{name}": use {" or ".join(known)}')
        stores = [name for name in known if not store or name in store]
        with steps() as on_step:
            rows = fold_rows(deployment, declared, [key], stores, on_step, write=not dry_run)
    if as_json:
        print_json(rows.to_json())
    else:
        rows.show()
    if any(compared.outcome in ("differs", "undecided") for compared in rows.rows):
        raise typer.Exit(DIFFERENT_EXIT)


@dataclass(frozen=True)
class RowsFound:
    """What was found of rows. streams: those that were read; None: the whole log."""

    view: View
    generation: int
    streams: Collection[str] | None
    rows: Sequence[FoldedRow]

    def to_json(self) -> dict[str, Any]:
        """For `--json`, of one row. stored, log: the fields that differ; null: there is no such row."""
        return {
            "view": self.view.name,
            "generation": self.generation,
            "key": self.rows[0].key,
            "streams": None if self.streams is None else list(self.streams),
            "row": self._visible(),
            "stores": [
                {
                    "store": compared.store,
                    "outcome": compared.outcome,
                    "stored": None if compared.differing is None else compared.differing[0],
                    "log": None if compared.differing is None else compared.differing[1],
                }
                for compared in self.rows
            ],
        }

    def show(self) -> None:
        """Print one row for people."""
        what = "the whole log" if self.streams is None else ", ".join(self.streams)
        visible = self._visible()
        says = "has no such row" if visible is None else f"says {json.dumps(visible, ensure_ascii=False)}"
        say(f"{self.view.name} g{self.generation}: {what} {says}")
        for compared in self.rows:
            say(f"{compared.store}: {SAID[compared.outcome]}")
        lines = [
            (compared.store, name, _value(stored, name), _value(folded, name))
            for compared in self.rows
            if compared.differing is not None
            for stored, folded in [compared.differing]
            for name in {**(stored or {}), **(folded or {})} or ["(the row)"]
        ]
        if lines:
            show_table(("store", "field", "stored", "log"), lines)

    def _visible(self) -> Row | None:
        """The columns that the log gives, up to what the first store has applied; None if there is no such row."""
        return shown_row(self.view, self.rows[0].key, self.rows[0].folded)


def fold_rows(
    deployment: Deployment,
    view: View,
    keys: Sequence[str],
    stores: Sequence[str],
    on_step: OnStep,
    *,
    write: bool,
    after: Mapping[str, int] = MappingProxyType({}),
) -> RowsFound:
    """Fold rows of the live generation; see RowFolder. Raises CannotFoldRow, and what it raises."""
    if view.has_own_query:
        raise CannotFoldRow(view.name, "Spark computes its rows, and not from the events of one row: rebuild it")
    if view.layout.retraction is not None:
        raise CannotFoldRow(
            view.name,
            "it counts rows, and a group has what was taken back from it: compare all of it with "
            f"`replay verify {view.name}`, and rebuild it if rows differ",
        )
    whole = [name for name in stores if backend(name).single_rows is None]
    if whole:
        raise CannotFoldRow(
            view.name,
            f"single rows in the store {whole[0]} are not replaced: rebuild the view, which changes only rows that "
            "differ there, or name other stores with --store",
        )
    live = live_generation(deployment.generations, view, CannotFoldRow)
    if after and live.paused_since is not None:
        raise CannotFoldRow(view.name, f"it is paused {paused_text(view.name, live.paused_since)}, and rebuild it then")
    streams = _streams(deployment, view, keys)
    phase = "read the log" if streams is None else "read streams"
    folder = RowFolder(
        Target(view, live.generation),
        deployment.settings,
        deployment.log,
        deployment.rebuilder().engine,
        {name: single(deployment.stores) for name in stores if (single := backend(name).single_rows) is not None},
        lambda done, total: on_step(Step(view.name, phase, done, total)),
        after,
    )
    return RowsFound(view, live.generation, streams, folder.fold(keys, streams, write=write))


def _streams(deployment: Deployment, view: View, keys: Sequence[str]) -> list[str] | None:
    """The streams that have all events of these rows; None if a key does not tell."""
    aggregates = CommandRegistry.load(deployment.settings.modules).aggregates.values()
    stream_names = dict[str, None]()
    for key in keys:
        streams = streams_of_row(view, key, aggregates)
        if streams is None:
            return None
        stream_names |= dict.fromkeys(streams)
    return list(stream_names)


def _value(state: dict[str, Any] | None, name: str) -> str:
    return "missing" if state is None else json.dumps(state.get(name), ensure_ascii=False)
