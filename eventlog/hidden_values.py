"""Texts of errors without the values of records: whoever reads logs and dead letters' reasons may not read these."""

from __future__ import annotations

import traceback
from typing import Final

from pydantic import ValidationError

MAX_FAULTS: Final = 10
"""Of one record, named in an error."""


def without_values(text: str) -> str:
    """A text without what pydantic quotes from its input. What a user's validator says stays, whatever it quotes."""
    return _cut(_cut(text, "Input tag", " '", "'", " found using"), "", ", input_value=", ", input_type=", "]")


def _cut(text: str, before: str, start: str, last: str, end: str) -> str:
    """A text without what is from `start`, after `before`, up to `end`, whose last part begins with `last`.

    A value may have all of these: so the last ones in a line count, in the first line that has them. Each place of the
    text is looked at a few times, however often a text of users has a part of this: no pattern of `re` can say that.
    """
    kept, at = list[str](), 0
    while (begin := text.find(before + start, at)) >= 0 and (stop := _end(text, begin, last, end)) >= 0:
        kept.append(text[at : begin + len(before)])
        at = stop
    return "".join([*kept, text[at:]])


def _end(text: str, start: int, last: str, end: str) -> int:
    """The place of the `end` that belongs to the last `last` in the first line after `start` with both; else -1."""
    while (begin := text.find(last, start)) >= 0:
        if (line_end := text.find("\n", begin)) < 0:
            line_end = len(text)
        stop = text.rfind(end, begin + len(last), line_end)
        if stop >= 0:
            return text.find(end, text.rfind(last, begin, stop) + len(last))
        start = line_end
    return -1


def error_text(error: BaseException, *, is_personal: bool = False) -> str:
    """The message of an error; of pydantic's, each fault with its place, in one line.

    is_personal: it is about personal plaintext values, which the messages of a user's validators may repeat, and so may
    places inside a field: only the names of fields and kinds of faults are shown.
    """
    if is_personal:
        faults = error.errors(include_input=False, include_context=False) if isinstance(error, ValidationError) else []
        kinds = [f"{fault['loc'][0] if fault['loc'] else 'value'}: {fault['type']}" for fault in faults[:MAX_FAULTS]]
        return "; ".join(kinds) or type(error).__name__
    if not isinstance(error, ValidationError):
        return without_values(str(error))
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    shown = [f"{'.'.join(map(str, fault['loc'])) or 'value'}: {fault['msg']}" for fault in faults[:MAX_FAULTS]]
    if len(faults) > MAX_FAULTS:
        shown.append(f"and {len(faults) - MAX_FAULTS} more")
    return without_values("; ".join(shown))


def places_of_error(error: BaseException) -> str:
    """The types of an error and its causes, and where they were raised, without their messages.

    For code that has personal values at hand: what a user's rule says may repeat them.
    """
    shown, seen = list[str](), set[int]()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        shown.insert(
            0, f"{''.join(traceback.format_tb(cause.__traceback__))}{type(cause).__name__} (its text is not shown)"
        )
        cause = cause.__cause__ or cause.__context__
    return "\n".join(shown)
