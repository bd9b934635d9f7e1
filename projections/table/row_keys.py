"""The keys of a view's rows: which rows an event changes, and the text of a key of several fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from headwater.commands.declaring.aggregate import Event
from headwater.eventlog.declaring import must_be_text, must_be_texts, shown
from headwater.projections.table.declared import described, storage_word
from headwater.projections.table.expressions import Field, FromEnvelope, UnknownField, literal
from headwater.projections.table.folds.arranging import ContributionKey
from headwater.projections.table.folds.fold import (
    EVERY,
    ByKey,
    Case,
    Cases,
    Ordering,
    Stored,
    case_text,
    event_of,
    must_be_case,
    one_kind,
)
from headwater.projections.table.items import Item
from headwater.projections.table.mistaken import refuse_mistaken
from headwater.projections.table.monoids import Extreme, StateField
from headwater.projections.table.rows import is_row, is_row_class
from headwater.projections.table.types import ColumnType

PART_TYPES: Final = (ColumnType.TEXT, ColumnType.INTEGER, ColumnType.BOOLEAN, ColumnType.DATE, ColumnType.UUID)
TYPED_PARTS: Final = frozenset(PART_TYPES) - {ColumnType.TEXT}
"""Those that are no texts, so that the text of a key beside them is a column of its own."""
SEPARATOR: Final = "/"

EXAMPLE: Final = 'key={Opened: "account_id", Transferred: ["from_account", "to_account"]}'
ONE: Final = 'the name of a field, as in key="owner", or envelope("stream")'


@storage_word("KeyParts")
@dataclass(frozen=True, slots=True)
class KeyParts:
    """The key of a row that several fields identify. None of them is null: an event without one cannot be read."""

    names: tuple[str, ...]

    def kind(self, event: type[Event] | None) -> ColumnType:
        for name in self.names:
            kind = Field(name).kind(event)
            if kind not in PART_TYPES:
                raise ValueError(
                    f'"{name}" is {kind.value}, but a part of a key is a text, an integer, a boolean, a date or a UUID'
                )
        return ColumnType.TEXT

    def fields(self) -> frozenset[str]:
        return frozenset(self.names)

    def spark(self, event: type[Event] | None, parsed: Mapping[str, ColumnType]) -> str:
        parts = []
        for name in self.names:
            text = f"cast({Field(name).spark(event, parsed)} as string)"
            is_text = Field(name).kind(event) is ColumnType.TEXT
            parts.append(f"replace(replace({text}, '%', '%25'), '/', '%2F')" if is_text else text)
        return f"concat({f', {literal(SEPARATOR)}, '.join(parts)})"

    def python(self, event: type[Event] | None) -> str:
        return f"key_of_parts({', '.join(Field(name).python(event) for name in self.names)})"

    def of_data(self, data: Mapping[str, Any]) -> str:
        """The key of an event with this data."""
        return key_of_parts(*(data[name] for name in self.names))

    def parts_of(self, key: str) -> dict[str, str]:
        """The texts of the fields in a key; empty if it has not as many parts."""
        parts = key.split(SEPARATOR)
        if len(parts) != len(self.names):
            return {}
        return {name: unquote(part) for name, part in zip(self.names, parts, strict=True)}


@dataclass(frozen=True, eq=False)
class KeyPart:
    """A column with one of the fields of the key: all events of a row have the same value."""

    cases: Cases

    def kind(self) -> ColumnType:
        return one_kind(self.cases)

    def stored(self, name: str, ordering: Ordering) -> Stored:
        field = StateField(name, self.kind())
        return Stored(
            Extreme(field, highest=True), {case: {name: case_value} for case, case_value in self.cases.items()}
        )


def key_of_parts(*values: Any) -> str:
    """The key of these values. The text of each has no slash, so that different rows have different keys."""
    texts = []
    for value in values:
        if isinstance(value, str):
            texts.append(value.replace("%", "%25").replace("/", "%2F"))
        else:
            texts.append(str(value).lower() if isinstance(value, bool) else str(value))
    return SEPARATOR.join(texts)


Key = str | tuple[str, ...] | FromEnvelope | Item
"""A key as it is declared: the name of a field, or of several, a text of the envelope, or a field of an item."""
KeysByEvent = Mapping[Case, Key | Sequence[str | tuple[str, ...]]]
"""By event, its key; a list of keys if it changes several rows."""
KeyExpression = Field | KeyParts | FromEnvelope | Item | ContributionKey


def key_expression(key: Key) -> KeyExpression:
    """The key of one row as an expression."""
    if isinstance(key, tuple):
        return KeyParts(key)
    return Field(key) if isinstance(key, str) else key


def of_event(key: KeyExpression, event: type[Event] | None) -> KeyExpression:
    """The key of an event's row. An integer, a date or another value of one text form is a part, which is a column."""
    if not isinstance(key, Field) or event is None:
        return key
    try:
        kind = key.kind(event)
    except UnknownField:
        return key  # which is refused
    return KeyParts((key.name,)) if kind in TYPED_PARTS else key


def key_name_of(key: KeyExpression) -> str | tuple[str, ...]:
    """What a declaration calls a key: the name of its field, or of several."""
    if not isinstance(key, KeyParts):
        return key.name
    return key.names if len(key.names) > 1 else key.names[0]


def described_key(key: Key | KeysByEvent) -> str:
    """The text of keys in a fingerprint, in which a list of two fields is no key of two fields."""
    if not isinstance(key, Mapping):
        return described(KeyParts(key) if isinstance(key, tuple) else key)
    return described({case: _with_parts(of_event) for case, of_event in key.items()})


def _with_parts(key: Any) -> Any:
    if isinstance(key, list):
        return [_with_parts(part) for part in key]
    return KeyParts(key) if isinstance(key, tuple) else key


def keys_of(keys: KeysByEvent, case: Case) -> tuple[KeyExpression, ...]:
    """The keys of the rows that an event changes, in the order in which it changes them; none if `keys` has none."""
    event = event_of(case)
    key_fields: Any = keys.get(EVERY if event is None else event, keys.get(EVERY, []))
    return tuple(map(key_expression, key_fields if isinstance(key_fields, list) else [key_fields]))


def check_key_types(key: object) -> None:
    """Raise ValueError unless it is a key, or one by event."""
    if not isinstance(key, Mapping):
        _check_one(key, "key", ONE)
        return
    if not key:
        raise ValueError(f"key is empty: write {EXAMPLE}")
    for case, of_event in key.items():
        refuse_mistaken("its key", case)
        if is_row(case) or is_row_class(case):
            raise ValueError(
                f"key has {shown(case)}, but rows of views and rows of captured tables have their own key: leave it out"
            )
        if isinstance(case, ByKey):
            raise ValueError(f"key has {case}: write the event alone, as in {EXAMPLE}")
        try:
            must_be_case(case)
        except ValueError as error:
            raise ValueError(f"key {error}: write {EXAMPLE}") from error
        _check_of_event(case, of_event)
    # a text may have a slash, so the key of one field could be that of several
    lengths: dict[int, str] = {}
    for case in key:
        for one in keys_of(key, case):
            lengths.setdefault(len(one.names) if isinstance(one, KeyParts) else 1, case_text(case))
    if len(lengths) > 1:
        (few, of_few), (many, of_many), *_ = sorted(lengths.items())
        fields = f"{few} field" if few == 1 else f"{few} fields"
        raise ValueError(
            f"a key of {of_many} has {many} fields, and a key of {of_few} has {fields}: give all the same number; if "
            f"an event changes several rows, list their keys, as in {EXAMPLE}"
        )


def check_by_keys(keys: Key | KeysByEvent, cases: Iterable[Case]) -> None:
    """Raise ValueError if one of these cases is a row that its event does not change."""
    for case in sorted({part for part in cases if isinstance(part, ByKey)}, key=str):
        if isinstance(keys, Mapping) and not keys_of(keys, case):
            continue  # it has no key at all
        of_event = keys.get(case.event) if isinstance(keys, Mapping) else keys
        if not isinstance(of_event, list):
            raise ValueError(
                f"{case} is one of several rows, but {case_text(case.event)} changes one row only: write "
                f"{case.event.__name__}, or list its keys, as in {EXAMPLE}"
            )
        if case.key not in of_event:
            known = " or ".join(str(ByKey(case.event, field)) for field in of_event)
            raise ValueError(f"{case} is no row of this view: write {known}")


def check_each_once(what: str, cases: Iterable[Case]) -> None:
    """Raise ValueError if these name an event, and one of its rows too."""
    listed = list(cases)
    for case in listed:
        if isinstance(case, ByKey) and case.event in listed:
            raise ValueError(
                f"{what} has {case_text(case.event)}, which stands for all of its rows, and {case}: write by_key for "
                "each of its keys"
            )


def _check_of_event(case: Case, key: object) -> None:
    name = case_text(case)
    if not isinstance(key, list):
        _check_one(key, f"the key of {name}", 'the name of a field, as in Opened: "account_id"')
        return
    for number, part in enumerate(key):
        if isinstance(part, FromEnvelope | Item):
            raise ValueError(f"the key of {name} lists {shown(part)}: only fields of the event make several rows")
        _check_one(part, f"a key of {name}", 'the name of a field, as in ["from_account", "to_account"]')
        if part in key[:number]:
            raise ValueError(f"the key of {name} has {shown(part)} twice: remove one")
    if len(key) < 2:
        raise ValueError(f"the key of {name} lists fewer than two: list one per row that it changes")
    if case is EVERY:
        raise ValueError(f"the key of EVERY lists fields, which not every event has: write {EXAMPLE}")


def _check_one(key: object, what: str, example: str) -> None:
    refuse_mistaken("its key", key)
    if isinstance(key, tuple):
        must_be_texts(what, key, 'the names of fields, as in key=("tenant", "day")')
        if len(key) < 2:
            raise ValueError(f"{what} is the tuple {shown(key)}: write the one name alone, or several")
    elif not isinstance(key, FromEnvelope | Item):
        must_be_text(what, key, example)
