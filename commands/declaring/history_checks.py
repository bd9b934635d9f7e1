"""Checks of the types of what a history is written with; whether it leads to the event, `upcasting` knows."""

from __future__ import annotations

import re
from typing import Final

from headwater.commands.declaring.steps import (
    Change,
    Conversion,
    Convert,
    Default,
    Drop,
    Move,
    Rename,
    RenameType,
    Split,
    Step,
)
from headwater.eventlog.declaring import must_be_text, must_be_texts, shown

TYPE_NAME: Final = re.compile(r"[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*")
"""Types of commands and events: the name of the aggregate, and a name of their own."""
EXAMPLE: Final = 'history=[after(1, rename("amount", "cents"))]'


def check_history(history: object) -> None:
    """Raise ValueError unless it is a list or tuple of changes, of steps that name fields."""
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


def _check_step(step: Step) -> None:
    match step:
        case Rename():
            must_be_text("the old name of rename()", step.old, 'rename("amount", "cents")')
            must_be_text("the new name of rename()", step.new, 'rename("amount", "cents")')
        case Move():
            must_be_text("the old place of move()", step.old, 'move("city", "address.city")')
            must_be_text("the new place of move()", step.new, 'move("city", "address.city")')
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
