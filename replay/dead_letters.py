"""`replay dead-letters list | retry`: show what could not be processed, and retry it after a fix."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Annotated, Final

import typer

from commands.receipt import Receipt
from eventlog.envelope import decode
from eventlog.errors import NotAnEnvelope
from eventlog.letters import Letter
from eventlog.topics import CAPTURED, COMMANDS, DEAD_LETTERS, EVENTS, PATCHES
from projections.loading.dead_letters import DeadLetters
from projections.view import View
from replay.deployment import Deployment, open_deployment
from replay.errors import NoSuchLetter
from replay.output import AsJson, one_line, output, print_json, say, show_table
from replay.progress import steps
from replay.retry import Resender, is_loss_notice, is_resent
from replay.view_arguments import check_choice

app = typer.Typer(
    help="Show and retry records that could not be read or loaded.", no_args_is_help=True, rich_markup_mode="markdown"
)

SHOWN_CHARACTERS: Final = 200


@dataclass(frozen=True)
class LetterRow:
    """A dead letter as it is printed. key: the place of the failed record. record: its key and value as text."""

    key: str
    reason: str
    time: str
    record: str


@app.command("list")
def list_letters(as_json: AsJson = False) -> None:
    """List all dead letters: the place of the failed record, the time and the reason."""
    with open_deployment(os.environ) as deployment:
        found = [_listed(key, letter) for key, letter in _letters(deployment).items()]
    if as_json:
        print_json({"letters": [asdict(each) for each in found]})
        return
    if not output().is_terminal:
        show_table(
            ("key", "time", "why", "record"), [(each.key, each.time, each.reason, each.record) for each in found]
        )
        return
    # keys and reasons are long, and keys are copied: one line for each
    for each in found:
        say(one_line(each.key))
        say(one_line(f"  {each.time}  {each.reason}"))
        say(one_line(f"  {each.record[:SHOWN_CHARACTERS]}"))
    if not found:
        say("none")


@app.command()
def retry(
    keys: Annotated[list[str] | None, typer.Argument(metavar="KEY", help="Keys of dead letters from `list`.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All dead letters except those of commands and lost records.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Retry dead letters after the cause was fixed.

    - An event or a patch: the affected views are rebuilt, because a skipped event cannot be added later.
    - An event at which a process failed: it is sent to the process again.
    - A command: its body is sent as a new command; `/retry` is appended to its command id. The client knows that the
      command failed, so only retry it if the client has not sent it again.

    The command stops at the first record that still cannot be read. A dead letter is removed after its retry.
    """
    check_choice(keys, everything, "letters")
    with open_deployment(os.environ) as deployment:
        letters = _letters(deployment)
        chosen = _chosen(letters, keys)
        receipts = _resend(deployment, {each: letters[each] for each in chosen if is_resent(each)})
        views = _rebuild(deployment, {each: letters[each] for each in chosen if not is_resent(each)})
    if as_json:
        answers = [
            {
                "key": key,
                "command_id": each.command_id,
                "outcome": each.outcome,
                "error": each.error and each.error.message,
            }
            for key, each in receipts.items()
        ]
        print_json({"retried": chosen, "rebuilt": views, "commands": answers})
        return
    for key, each in receipts.items():
        say(one_line(f"{key}: {each.command_id} is {each.outcome} {each.error.message if each.error else ''}".rstrip()))
    say(f"{len(chosen)} dead letters retried; rebuilt: {', '.join(views) or 'nothing'}")


def _resend(deployment: Deployment, letters: Mapping[str, Letter]) -> dict[str, Receipt]:
    """Send the records of these letters again; returns the receipts of commands by the letter's key."""
    if not letters:
        return {}
    resender, writer = Resender(deployment.settings, deployment.log), DeadLetters(deployment.settings)
    receipts = {}
    for key, letter in letters.items():
        receipt = resender.resend(key, letter)
        if receipt is not None:
            receipts[key] = receipt
        # immediately, so that nothing is sent twice if a later one fails
        writer.put(key, None)
        writer.flush()
    return receipts


def _rebuild(deployment: Deployment, letters: Mapping[str, Letter]) -> list[str]:
    """Rebuild the views that these letters affect, then remove the letters; returns the views' names."""
    if not letters:
        return []
    deployment.generations.prepare()
    views = {view.name: view for key, each in letters.items() for view in _concerned(deployment, key, each)}
    rebuilder = deployment.rebuilder()
    with steps() as on_step:
        for view in views.values():
            rebuilder.rebuild(view, on_step)
    writer = DeadLetters(deployment.settings)
    for key in letters:
        writer.put(key, None)
    writer.flush()
    return list(views)


def _letters(deployment: Deployment) -> dict[str, Letter]:
    """The letters by key; a later one replaces an earlier one, and a tombstone removes it."""
    letters: dict[str, Letter] = {}
    for record in deployment.log.read(DEAD_LETTERS, 0, 0):
        letters.pop(record.key, None)
        if record.value is not None:
            letters[record.key] = Letter.from_json(record.value)
    return letters


def _chosen(letters: Mapping[str, Letter], keys: Sequence[str] | None) -> list[str]:
    if not keys:
        return [key for key in letters if not key.startswith(f"{COMMANDS}/") and not is_loss_notice(key)]
    for key in keys:
        if key not in letters:
            raise NoSuchLetter(key)
    return list(keys)


def _concerned(deployment: Deployment, key: str, letter: Letter) -> Iterator[View]:
    """The views that the letter affects; all views if this is unknown."""
    views = deployment.views.views
    if key.startswith(f"{PATCHES}/"):
        # for a part of a patch, the letter's key has the view; for a whole patch, the record's key
        parts = key.split("/")
        tag = parts[2] if len(parts) > 3 else (letter.key or b"").decode(errors="replace").partition("/")[0]
        # of a stream view, the tag also has the generation, after a dot
        tagged = [view for view in views.values() if view.tag == tag.partition(".")[0]]
        yield from tagged or views.values()
        return
    if key.startswith(CAPTURED):
        yield from (view for view in views.values() if view.reads(key.partition("/")[0]))
        return
    event_type = None
    with suppress(NotAnEnvelope):
        event_type = decode(letter.value).type
    for view in views.values():
        if view.reads(EVENTS) and (event_type is None or view.handles(event_type)):
            yield view


def _listed(key: str, letter: Letter) -> LetterRow:
    record = " ".join((part or b"").decode(errors="replace") for part in (letter.key, letter.value))
    return LetterRow(key, letter.reason, letter.time, record.strip())
