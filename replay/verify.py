"""`replay verify | diff`: compare generations row by row, and check the log that they are made from."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict
from typing import Annotated

import typer

from headwater.projections.errors import GenerationMissing
from headwater.projections.generations.registry.generation import Generation, has_rows_of
from headwater.projections.stores.open import open_reader
from headwater.projections.stores.store import Target
from headwater.replay.comparison import Comparison, compare
from headwater.replay.deployment import Deployment, open_deployment
from headwater.replay.errors import CannotDiff
from headwater.replay.log_check import LogFindings, check_log
from headwater.replay.output import AsJson, print_json, say, show_table
from headwater.replay.separate_rebuild import Verified
from headwater.replay.separate_rebuild import verify as verify_view
from headwater.replay.verbs import Everything, Outcome, SkipPoison, Views, check_choice, on_each, steps

DIFFERENT_EXIT = 3
LOG_ADVICE = (
    "log: some events were appended twice or out of order. Rows may have both records; the receipt, the state and "
    "Kafka's compaction keep the later one. Compare them, and rebuild the views once compaction has removed the "
    'earlier one: see "A broken log" in docs/running.md'
)
GENERATION = re.compile(r"(?P<view>[a-z0-9_]+)(?:@g(?P<number>\d+))?")


def verify(
    views: Views = None, everything: Everything = False, skip_poison: SkipPoison = False, as_json: AsJson = False
) -> None:
    """Rebuild each VIEW separately and compare every row with the live generation. Exit code 3: rows differ.

    Queries and live updates continue. Rows that change meanwhile are compared again. Then the rebuild is dropped.

    The log of events is checked, too: ids are unique, versions are in order, and no event of a stream is earlier than
    the one before it. Exit code 3 if not.
    """
    check_choice(views, everything)
    with open_deployment(os.environ) as deployment:
        declared = deployment.declared(views)
        deployment.generations.prepare()
        rebuilder = deployment.rebuilder()
        with steps() as on_step:
            findings = check_log(deployment.log, on_step)
        outcome = on_each(
            declared,
            lambda name, on_step: verify_view(rebuilder, declared[name], on_step, skip_poison=skip_poison),
            lambda outcome: _report(outcome, findings, as_json),
        )
    is_right = findings.is_sound and all(each.equal for each in outcome.done)
    outcome.exit(0 if is_right else DIFFERENT_EXIT)


def _report(outcome: Outcome[Verified], findings: LogFindings, as_json: bool) -> None:
    if as_json:
        outcome.print_json(to_json=asdict, log=findings.to_json())
    else:
        missing = f"; {findings.missing:,} versions missing, such as of erased events" if findings.missing else ""
        say(
            f"log: {findings.records:,} records checked, {findings.repeated.count:,} ids repeated, "
            f"{findings.out_of_order.count:,} versions out of order, {findings.backwards.count:,} times going back"
            f"{missing}"
        )
        if not findings.is_sound:
            kinds = {
                "repeated id": findings.repeated,
                "version out of order": findings.out_of_order,
                "time going back": findings.backwards,
            }
            rows = [(kind, *each.to_json().values()) for kind, found in kinds.items() for each in found.sample]
            show_table(("problem", "stream", "version", "position", "earlier record"), rows)
            say(LOG_ADVICE)
        for found in outcome.done:
            for each in found.stores:
                _show(each, f"{found.view} g{found.generation}", "replay", f"{found.view} in ")
    outcome.complain()


def diff(
    left: Annotated[str, typer.Argument(help="`VIEW@g3`, or `VIEW` for its live generation.")],
    right: Annotated[str, typer.Argument(help="The generation to compare with; it may be a view made with --as.")],
    store: Annotated[str, typer.Option(help="The store to compare in; default: the first store that has both.")] = "",
    as_json: AsJson = False,
) -> None:
    """Compare two generations row by row. Exit code 3: rows differ.

    Only live generations are kept up to date. So newer events also show as differences.
    """
    with open_deployment(os.environ) as deployment:
        deployment.generations.prepare()
        ours, theirs = _generation(deployment, left), _generation(deployment, right)
        if not has_rows_of(ours, theirs.declaration):
            raise CannotDiff(left, right, "their declarations differ: see `replay plan`")
        shared = [each for each in ours.stores if each in theirs.stores]
        if store and store not in shared:
            raise CannotDiff(
                left, right, f'store "{store}" does not have both generations: use {" or ".join(shared) or "none"}'
            )
        where = store or shared[0]
        found = compare(
            open_reader(where, deployment.stores),
            where,
            _target(deployment, ours, left, right),
            _target(deployment, theirs, left, right),
            lambda: frozenset,
        )
    if as_json:
        print_json({"left": _name(ours), "right": _name(theirs), **asdict(found)})
    else:
        _show(found, _name(ours), _name(theirs))
    if found.differences:
        raise typer.Exit(DIFFERENT_EXIT)


def _generation(deployment: Deployment, text: str) -> Generation:
    match = GENERATION.fullmatch(text)
    if match is None:
        raise typer.BadParameter(f'"{text}" is not a generation: use VIEW@g3, or VIEW for its live generation')
    name, number = match["view"], match["number"]
    if number is None:
        live = deployment.generations.live().get(name)
        if live is not None:
            return live
    known = deployment.generations.of(name)
    if not known:
        deployment.views.view(name)
    for each in known:
        if number is not None and each.generation == int(number):
            return each
    raise GenerationMissing(name, None if number is None else int(number), [each.generation for each in known])


def _target(deployment: Deployment, generation: Generation, left: str, right: str) -> Target:
    """The generation as a target to read; this code must have the same declaration."""
    view = deployment.views.view(generation.source or generation.view)
    if not has_rows_of(generation, view.declaration) or list(generation.row_types) != view.row_types:
        raise CannotDiff(left, right, f"{_name(generation)} is {generation.tag}: run the code of that version")
    return Target(view.named(generation.view), generation.generation)


def _name(generation: Generation) -> str:
    return f"{generation.view}@g{generation.generation}"


def _show(found: Comparison, left: str, right: str, where: str = "") -> None:
    undecided = f", {found.undecided:,} undecided because they kept changing" if found.undecided else ""
    say(f"{where}{found.store}: {found.rows:,} rows compared, {found.differences:,} differ{undecided}")
    if found.sample:
        states = [(row.key, row.left, row.right) for row in found.sample]
        rows = [(key, *("missing" if each is None else json.dumps(each) for each in both)) for key, *both in states]
        show_table(("key", left, right), rows)
