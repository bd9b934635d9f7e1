"""`replay dead-letters list | retry`: show what could not be processed, and retry it after a fix."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Annotated, Final

import typer

from headwater.commands.receipt import Receipt
from headwater.eventlog.audit.commands import AuditedCommand, Failed
from headwater.eventlog.envelope import decode
from headwater.eventlog.errors import NotAnEnvelope
from headwater.eventlog.letters import Letter
from headwater.eventlog.ports import record_at
from headwater.eventlog.source_positions import source_id
from headwater.eventlog.topics import CAPTURED, COMMANDS, EVENTS, PATCHES, VIEWS
from headwater.projections.folding.row_changes import rows_of_record
from headwater.projections.loading.dead_letters import DeadLetters
from headwater.projections.reading.records import Unreadable
from headwater.projections.view import View
from headwater.replay.deployment import Deployment, open_deployment
from headwater.replay.erase import MAX_KEYS
from headwater.replay.errors import CannotFoldRow, CannotRetry, NoSuchLetter, NothingToRetry, Undeclared
from headwater.replay.output import AsJson, complain, one_line, output, print_json, say, show_table
from headwater.replay.parts import letters_of
from headwater.replay.retry import Resender, is_loss_notice, is_resent
from headwater.replay.row import fold_rows
from headwater.replay.verbs import FAILED_EXIT, KNOWN, OnStep, check_choice, steps

DONE: Final = ("equal", "replaced")


@dataclass(frozen=True)
class LetterRows:
    """The rows of a view that a letter is about. after: see RowFolder."""

    keys: frozenset[str] = frozenset()
    after: Mapping[str, int] = field(default_factory=dict)


def rows_of_letter(deployment: Deployment, view: View, key: str, letter: Letter) -> LetterRows | None:
    """The rows of `view` that are wrong because of this letter; None if it does not tell.

    Raises CannotRetry if its record still cannot be read, and LogUnavailable.
    """
    if key.startswith(f"{PATCHES}/"):
        # a part of a patch names its row; of a whole patch that nobody could read, nothing is known
        known = len(key.split("/")) > 3 and letter.key is not None
        return LetterRows(frozenset({(letter.key or b"").decode(errors="surrogateescape")})) if known else None
    record = None
    with suppress(ValueError):
        topic, partition, offset = key.rsplit("/", 2)
        record = record_at(deployment.log, topic, int(partition), int(offset))
    if record is None:
        return None
    if record.value is None and record.topic == EVENTS:
        return LetterRows()  # it was erased since
    source = source_id(record.topic, record.partition)
    try:
        keys = rows_of_record(view, record)
    except Unreadable as error:
        raise CannotRetry(key, f"record {source}:{record.offset} still cannot be read: {error}") from error
    return None if keys is None else LetterRows(keys, {source: record.offset})


def fold_again(deployment: Deployment, view: View, letters: list[LetterRows], on_step: OnStep) -> int | None:
    """Fold the rows of these letters again, and return how many there are; None if the view must be rebuilt instead.

    Raises what `fold_rows` raises, except CannotFoldRow.
    """
    keys = sorted({key for letter in letters for key in letter.keys})
    if not keys or len(keys) > MAX_KEYS:
        return None if keys else 0
    after = dict[str, int]()
    for letter in letters:
        for source, offset in letter.after.items():
            after[source] = max(offset, after.get(source, 0))
    try:
        stores = [store.name for store in view.stores]
        folded = fold_rows(deployment, view, keys, stores, on_step, write=True, after=after)
    except CannotFoldRow:
        return None
    return len(keys) if all(row.outcome in DONE for row in folded.rows) else None


app = typer.Typer(
    help="Show and retry records that could not be read or loaded.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
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
        letters = []
        for key, letter in letters_of(deployment.log).items():
            record = " ".join((part or b"").decode(errors="replace") for part in (letter.key, letter.value))
            letters.append(LetterRow(key, letter.reason, letter.time, record.strip()))
    if as_json:
        print_json({"letters": [asdict(letter) for letter in letters]})
        return
    if not output().is_terminal:
        show_table(
            ("key", "time", "why", "record"),
            [(letter.key, letter.time, letter.reason, letter.record) for letter in letters],
        )
        return
    # keys and reasons are long, and keys are copied: one line for each
    for dead_letter in letters:
        say(one_line(dead_letter.key))
        say(one_line(f"  {dead_letter.time}  {dead_letter.reason}"))
        say(one_line(f"  {dead_letter.record[:SHOWN_CHARACTERS]}"))
    if not letters:
        say("none")


@app.command(cls=AuditedCommand)
def retry(
    keys: Annotated[list[str] | None, typer.Argument(metavar="KEY", help="Keys of dead letters from `list`.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All dead letters except those of commands and lost records.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Retry dead letters after the cause was fixed.

    - An event or a patch: the rows that it changes are folded again from the log, in every store. A view is rebuilt if
      its rows cannot be folded alone, if the letters do not tell which rows these are, or if there are many.
    - An event at which a process failed: it is sent to the process again.
    - A command: its body is sent as a new command; `/retry` is appended to its command id. The client knows that the
      command failed, so only retry it if the client has not sent it again.

    A record that still cannot be read, or whose view cannot be rebuilt, stops no other: it is reported at the end, and
    the exit code is 1. A dead letter is removed after its retry, and if nothing needs its record any more: for example,
    its process has handled it since. It stays if its process would ignore it.
    """
    check_choice(keys, everything, "letters")
    with open_deployment(os.environ) as deployment:
        letters = letters_of(deployment.log)
        for key in keys or ():
            if key not in letters:
                raise NoSuchLetter(key)
        retried = [key for key in letters if not (key.startswith(f"{COMMANDS}/") or is_loss_notice(key))]
        chosen = {key: letters[key] for key in keys or retried}
        outcome = Retried(list(chosen))
        try:
            again = {key: letter for key, letter in chosen.items() if is_resent(key)}
            _resend(deployment, again, outcome, everything)
            corrected = {key: letter for key, letter in chosen.items() if key not in again}
            _correct(deployment, corrected, outcome, everything)
        finally:
            outcome.report(as_json)
    if outcome.failed:
        raise Failed("; ".join(f"{key}: {error}" for key, error in outcome.failed.items()), FAILED_EXIT)


@dataclass
class Retried:
    """What became of dead letters.

    chosen: their keys. removed: those that are gone. obsolete: by key, why some of these were not needed any more.
    failed: by key, why others were not retried. receipts: of commands, by key. views: those that were rebuilt. rows: by
    view, how many rows were folded again instead.
    """

    chosen: Sequence[str]
    removed: set[str] = field(default_factory=set)
    obsolete: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    receipts: dict[str, Receipt] = field(default_factory=dict)
    views: list[str] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)

    def report(self, as_json: bool) -> None:
        """Print it; the reasons go to standard error."""
        retried = [key for key in self.chosen if key in self.removed and key not in self.obsolete]
        if as_json:
            failed = [{"key": key, "error": error} for key, error in self.failed.items()]
            commands = [
                {
                    "key": key,
                    "command_id": receipt.command_id,
                    "outcome": receipt.outcome,
                    "error": receipt.error and receipt.error.message,
                }
                for key, receipt in self.receipts.items()
            ]
            obsolete = [{"key": key, "reason": reason} for key, reason in self.obsolete.items()]
            document = {"retried": retried, "rebuilt": self.views, "commands": commands, "failed": failed}
            rows = [{"view": view, "rows": number} for view, number in self.rows.items()]
            print_json({**document, "not_needed": obsolete, "folded": rows})
        else:
            for key, receipt in self.receipts.items():
                problem = receipt.error.message if receipt.error else ""
                say(one_line(f"{key}: {receipt.command_id} is {receipt.outcome} {problem}".rstrip()))
            for key, reason in self.obsolete.items():
                say(one_line(f"{key}: removed without a retry: {reason}"))
            rebuilt = ", ".join(self.views) or "nothing"
            folded = ", ".join(f"{number} of {view}" for view, number in self.rows.items())
            more = f"; rows folded again: {folded}" if folded else ""
            say(f"{len(retried)} dead letters retried; rebuilt: {rebuilt}{more}")
        for error in dict.fromkeys(self.failed.values()):
            complain(one_line(error))
        if self.failed:
            complain(f"{len(self.failed)} dead letters not retried: {', '.join(map(one_line, self.failed))}")


def _resend(deployment: Deployment, letters: Mapping[str, Letter], outcome: Retried, everything: bool) -> None:
    """Send the records of these letters again. everything: whether nobody has named their keys."""
    if not letters:
        return
    resender, writer = Resender(deployment.settings, deployment.log), DeadLetters(deployment.settings)
    for key, letter in letters.items():
        try:
            receipt = resender.resend(key, letter)
        except (NothingToRetry, Undeclared) as error:
            if everything and isinstance(error, Undeclared):
                outcome.failed[key] = str(error)
                continue
            outcome.obsolete[key] = error.problem
            _remove(writer, [key], outcome)
            continue
        except CannotRetry as error:
            outcome.failed[key] = str(error)
            continue
        if receipt is not None:
            outcome.receipts[key] = receipt
        # immediately, so that nothing is sent twice if the command ends early
        _remove(writer, [key], outcome)


def _correct(deployment: Deployment, letters: Mapping[str, Letter], outcome: Retried, everything: bool) -> None:
    """Correct the views that these letters affect, then remove those whose views all are. everything: likewise."""
    if not letters:
        return
    deployment.generations.prepare()
    concerned = {key: list(_concerned(deployment, key, letter)) for key, letter in letters.items()}
    views = deployment.views.views
    if others := sorted({g.view for g in deployment.generations.live().values() if (g.source or g.view) not in views}):
        # one of them may lack the record: the letter is the only trace of that
        named = [
            key
            for key, views_of_key in concerned.items()
            if not (key.startswith(f"{PATCHES}/") and len(views_of_key) == 1)
        ]
        for key in named if everything else ():
            outcome.failed[key] = str(Undeclared(key, "live views", others))
            del concerned[key]
        letters = {key: letters[key] for key in concerned}
    affected = {view.name: view for views_of_key in concerned.values() for view in views_of_key}
    failed: dict[str, str] = {}
    with steps() as on_step:
        whole = []
        for view in affected.values():
            of_view = {key: letters[key] for key, views_of_key in concerned.items() if view in views_of_key}
            try:
                if not _fold_rows(deployment, view, of_view, outcome, on_step):
                    whole.append(view)
            except KNOWN as error:
                failed[view.name] = str(error)
        for view, result in deployment.rebuilder().rebuild_all(whole, on_step):
            if isinstance(result, Exception):
                failed[view.name] = str(result)
            else:
                outcome.views.append(view.name)
    for key, views_of_key in concerned.items():
        if problems := [failed[view.name] for view in views_of_key if view.name in failed]:
            outcome.failed.setdefault(key, "; ".join(problems))
    _remove(DeadLetters(deployment.settings), [key for key in letters if key not in outcome.failed], outcome)


def _fold_rows(
    deployment: Deployment, view: View, letters: Mapping[str, Letter], outcome: Retried, on_step: OnStep
) -> bool:
    """Fold the rows of a view that letters are about; false if it must be rebuilt. Raises what `fold_rows` raises."""
    results = []
    for key, letter in letters.items():
        try:
            rows = rows_of_letter(deployment, view, key, letter)
        except CannotRetry as error:
            outcome.failed[key] = str(error)
            continue
        if rows is None:
            return False
        results.append(rows)
    number = fold_again(deployment, view, results, on_step)
    if number:
        outcome.rows[view.name] = number
    return number is not None


def _remove(writer: DeadLetters, keys: Sequence[str], outcome: Retried) -> None:
    for key in keys:
        writer.put(key, None)
    writer.flush()
    outcome.removed |= set(keys)


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
    if key.startswith((CAPTURED, VIEWS)):
        yield from (view for view in views.values() if view.reads(key.partition("/")[0]))
        return
    event_type = None
    with suppress(NotAnEnvelope):
        event_type = decode(letter.value).type
    for view in views.values():
        if view.reads(EVENTS) and (event_type is None or view.handles(event_type)):
            yield view
