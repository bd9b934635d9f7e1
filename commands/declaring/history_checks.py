"""Checks of the types of what a history is written with; whether it leads to the event, `upcasting` knows."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from operator import attrgetter
from typing import Final

from commands.declaring.steps import Change, Conversion, Convert, Default, Drop, Rename, RenameType, Split, Step
from eventlog.declaring import must_be_text, must_be_texts, shown

TYPE_NAME: Final = re.compile(r"[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*")
"""Types of commands and events: the name of the aggregate, and a name of their own."""
EXAMPLE: Final = 'history=[after(1, rename("amount", "cents"))]'


def check_history(history: object, personal: Collection[str] = ()) -> None:
    """Raise ValueError unless it is a list or tuple of changes, of steps that name fields.

    personal: fields whose values are sealed texts, from which no step can compute anything.
    """
    if isinstance(history, Change):
        raise ValueError(f"history is one change: write it as a list, as in {EXAMPLE}")
    if not isinstance(history, list | tuple):
        raise ValueError(f"history is {shown(history)}, which is no list of changes: write {EXAMPLE}")
    for change in history:
        if not isinstance(change, Change):
            raise ValueError(f"history has {shown(change)} without its version: write {EXAMPLE}")
        if type(change.version) is not int:
            raise ValueError(f"after({shown(change.version)}, …) names no version: write {EXAMPLE}")
        for step in change.steps:
            try:
                _check_step(step)
            except ValueError as error:
                raise ValueError(f"after({change.version}, …): {error}") from error
    if personal:
        _check_personal(history, set(personal))


def _check_personal(history: Sequence[Change], personal: set[str]) -> None:
    """personal: the names of personal fields now; older names of them are added."""
    for change in sorted(history, key=attrgetter("version"), reverse=True):
        for step in reversed(change.steps):
            if isinstance(step, Rename) and step.new in personal:
                personal.add(step.old)
            named = {step.field} if isinstance(step, Convert | Split) else set()
            named |= set(step.into) if isinstance(step, Split) else set()
            for name in sorted(named & personal):
                raise ValueError(
                    f'after({change.version}, …): "{name}" is personal, so events have a sealed text, from which '
                    "nothing can be computed: use a new field, and leave the old one as it is"
                )


def _check_step(step: Step) -> None:
    match step:
        case Rename():
            must_be_text("the old name of rename()", step.old, 'rename("amount", "cents")')
            must_be_text("the new name of rename()", step.new, 'rename("amount", "cents")')
        case Default():
            must_be_text("the field of default()", step.field, 'default("currency", "USD")')
        case Drop():
            must_be_text("the field of drop()", step.field, 'drop("note")')
        case Convert():
            example = 'convert("price", scaled(100))'
            must_be_text("the field of convert()", step.field, example)
            if not isinstance(step.how, Conversion):
                raise ValueError(
                    f'convert("{step.field}", …) is given {shown(step.how)}, which converts nothing: write {example}'
                )
        case Split():
            example = 'split("name", into=("first", "last"), at=" ")'
            must_be_text("the field of split()", step.field, example)
            must_be_texts("into of split()", step.into, example)
            if not isinstance(step.at, str):
                raise ValueError(f"at of split() is {shown(step.at)}, which is no text: write {example}")
        case RenameType():
            example = 'rename_type("parcel.weighed", "parcel.measured")'
            must_be_text("the old type of rename_type()", step.old, example)
            must_be_text("the new type of rename_type()", step.new, example)
            if not TYPE_NAME.fullmatch(step.old) or step.old.partition(".")[0] != step.new.partition(".")[0]:
                raise ValueError(
                    f'rename_type() has the old type "{step.old}", which is no type of the same aggregate as '
                    f'"{step.new}": write it like {example}'
                )
            if step.old == step.new:
                raise ValueError(f'rename_type() renames "{step.old}" to itself: remove it')
        case _:
            raise ValueError(f"{shown(step)} is no step: write {EXAMPLE}")
