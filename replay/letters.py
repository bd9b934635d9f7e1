"""`replay dead-letters list | retry`: what could not be taken in, and taking it in after the cause is mended."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

import orjson
import typer
from rich.table import Table

from eventlog.envelope import decode
from eventlog.errors import NotAnEnvelope
from eventlog.topics import COMMANDS, DEAD_LETTERS, PATCHES
from projections.dead_letters import DeadLetters
from projections.view import TableView
from replay.deployment import Deployment, open_deployment
from replay.errors import CannotRetry, NoSuchLetter
from replay.output import AsJson, console, print_json, steps

app = typer.Typer(help="What could not be read or loaded, and why.", no_args_is_help=True)

SHOWN_CHARACTERS: Final = 200


@dataclass(frozen=True)
class Letter:
    """A dead letter. key: its own, the place that it comes from. record: its key and value, as text."""

    key: str
    reason: str
    time: str
    record: str


@app.command("list")
def list_letters(as_json: AsJson = False) -> None:
    """Every dead letter: where it comes from, when, and why."""
    with open_deployment(os.environ) as deployment:
        found = [_letter(key, document) for key, document in _letters(deployment).items()]
    if as_json:
        print_json({"letters": [asdict(each) for each in found]})
        return
    table = Table("key", "time", "why", "record")
    for each in found:
        table.add_row(each.key, each.time, each.reason, each.record[:SHOWN_CHARACTERS])
    console.print(table)


@app.command()
def retry(
    keys: Annotated[list[str] | None, typer.Argument(help="Keys of letters, as `list` shows them.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every letter of an event or a patch.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take in what these letters are about, after its cause was mended: rebuild the views concerned.

    A view applies events in order, so one that was left out cannot be added later: only a rebuild takes it in. It stops
    where an event still cannot be read. The letters are taken away when all views are rebuilt.
    """
    if bool(keys) == everything:
        raise typer.BadParameter("name the letters to retry, or say --all")
    with open_deployment(os.environ) as deployment:
        deployment.generations.prepare()
        letters = _letters(deployment)
        chosen = _chosen(letters, keys)
        views = {view.name: view for each in chosen for view in _concerned(deployment, each, letters[each])}
        rebuilder = deployment.rebuilder()
        for view in views.values():
            with steps(quiet=as_json) as on_step:
                rebuilder.rebuild(view, on_step)
        writer = DeadLetters(deployment.settings)
        for each in chosen:
            writer.put(each, None)
        writer.close()
    if as_json:
        print_json({"retried": chosen, "rebuilt": list(views)})
        return
    console.print(f"{len(chosen)} letters taken in; rebuilt: {', '.join(views) or 'nothing'}")


def _letters(deployment: Deployment) -> dict[str, dict[str, Any]]:
    """The letters by key; a later one replaces an earlier one, and a tombstone takes it away."""
    letters: dict[str, dict[str, Any]] = {}
    for record in deployment.log.read(DEAD_LETTERS, 0, 0):
        letters.pop(record.key, None)
        if record.value is not None:
            letters[record.key] = orjson.loads(record.value)
    return letters


def _chosen(letters: Mapping[str, Mapping[str, Any]], keys: Sequence[str] | None) -> list[str]:
    if keys is None or not keys:
        return [key for key in letters if not key.startswith(f"{COMMANDS}/")]
    for key in keys:
        if key not in letters:
            raise NoSuchLetter(key)
        if key.startswith(f"{COMMANDS}/"):
            raise CannotRetry(key, "a command is sent again by its client, under a new id")
    return list(keys)


def _concerned(deployment: Deployment, key: str, letter: Mapping[str, Any]) -> Iterator[TableView]:
    """The views that what the letter is about belongs to; all of them where that cannot be told."""
    views = deployment.views.views
    if key.startswith(f"{PATCHES}/"):
        parts = key.split("/")
        tagged = [view for view in views.values() if len(parts) > 3 and view.tag == parts[2]]
        yield from tagged or views.values()
        return
    event_type = None
    with suppress(NotAnEnvelope):
        event_type = decode(_bytes(letter.get("value"))).type
    for view in views.values():
        if event_type is None or view.handles_every or event_type in view.events:
            yield view


def _letter(key: str, document: Mapping[str, Any]) -> Letter:
    parts = [(_bytes(document.get(name)) or b"").decode(errors="replace") for name in ("key", "value")]
    return Letter(key, document.get("reason", ""), document.get("time") or "", " ".join(parts).strip())


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
