"""The keys of a view's rows as they are declared: which rows an event changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from eventlog.capturing.declaring import Captured
from eventlog.declaring import must_be_text, must_be_texts, shown
from projections.table.by_key import ByKey
from projections.table.expressions import Field, FromEnvelope
from projections.table.folds.fold import EVERY, Case, case_text, event_of, must_be_case
from projections.table.items import Item
from projections.table.mistaken import Mistaken
from projections.table.rows import CapturedRow, is_row

Key = str | FromEnvelope | Item
"""A key as it is declared: the name of a field, a text of the envelope, or a field of an item."""
KeysByEvent = Mapping[Case, Key | Sequence[str]]
"""By event, its key; a list of fields if it changes several rows."""
KeyExpression = Field | FromEnvelope | Item

EXAMPLE: Final = 'key={Opened: "account_id", Transferred: ["from_account", "to_account"]}'
ONE: Final = 'the name of a field, as in key="owner", or envelope("stream")'


def key_expression(key: Key) -> KeyExpression:
    """The key of one row as an expression."""
    return Field(key) if isinstance(key, str) else key


def keys_of(keys: KeysByEvent, case: Case) -> tuple[KeyExpression, ...]:
    """The keys of the rows that an event changes, in the order in which it changes them; none if `keys` has none."""
    event = event_of(case)
    found = keys.get(EVERY if event is None else event, keys.get(EVERY, ()))
    return tuple(map(Field, found)) if isinstance(found, list | tuple) else (key_expression(found),)  # type: ignore[arg-type]


def check_key_types(key: object) -> None:
    """Raise ValueError unless it is a key, or one by event."""
    if not isinstance(key, Mapping):
        _check_one(key, "key", ONE)
        return
    if not key:
        raise ValueError(f"key is empty: write {EXAMPLE}")
    for case, of_event in key.items():
        if isinstance(case, Mistaken):
            raise ValueError(f"its key: {case.problem}")
        if is_row(case) or (isinstance(case, type) and issubclass(case, Captured | CapturedRow)):
            raise ValueError(f"key has {shown(case)}, but rows of captured tables have their own key: leave it out")
        if isinstance(case, ByKey):
            raise ValueError(f"key has {case}: write the event alone, as in {EXAMPLE}")
        try:
            must_be_case(case)
        except ValueError as error:
            raise ValueError(f"key {error}: write {EXAMPLE}") from error
        _check_of_event(case, of_event)


def check_by_keys(keys: Key | KeysByEvent, cases: Iterable[Case]) -> None:
    """Raise ValueError if one of these cases is a row that its event does not change."""
    for case in sorted({each for each in cases if isinstance(each, ByKey)}, key=str):
        if isinstance(keys, Mapping) and not keys_of(keys, case):
            continue  # it has no key at all
        of_event = keys.get(case.event) if isinstance(keys, Mapping) else keys
        if not isinstance(of_event, list):
            raise ValueError(
                f"{case} is one of several rows, but {case_text(case.event)} changes one row only: write "
                f"{case.event.__name__}, or list its keys, as in {EXAMPLE}"
            )
        if case.key not in of_event:
            known = " or ".join(f'"{each}"' for each in of_event)
            raise ValueError(f"{case} is no row of this view: the keys of {case_text(case.event)} are {known}")


def check_each_once(what: str, cases: Iterable[Case]) -> None:
    """Raise ValueError if these name an event, and one of its rows too."""
    found = list(cases)
    for case in found:
        if isinstance(case, ByKey) and case.event in found:
            raise ValueError(
                f"{what} has {case_text(case.event)}, which stands for all of its rows, and {case}: write by_key for "
                "each of its keys"
            )


def _check_of_event(case: Case, key: object) -> None:
    name = case_text(case)
    if not isinstance(key, list | tuple):
        _check_one(key, f"the key of {name}", 'the name of a field, as in Opened: "account_id"')
        return
    listed = ", ".join(f'"{each}"' if isinstance(each, str) else shown(each) for each in key)
    if isinstance(key, tuple):
        raise ValueError(f"the key of {name} is the tuple ({listed}): if it changes several rows, write [{listed}]")
    must_be_texts(f"the key of {name}", key, 'the names of fields, as in ["from_account", "to_account"]')
    if len(key) < 2:
        raise ValueError(f"the key of {name} lists fewer than two fields: list one per row that it changes")
    if case is EVERY:
        raise ValueError(f"the key of EVERY lists fields, which not every event has: write {EXAMPLE}")


def _check_one(key: object, what: str, example: str) -> None:
    if isinstance(key, Mistaken):
        raise ValueError(f"its key: {key.problem}")
    if not isinstance(key, FromEnvelope | Item):
        must_be_text(what, key, example)
