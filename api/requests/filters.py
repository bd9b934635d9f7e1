"""Filters of rows, read from parameters such as `city=GALT`, `price.gte=3` and `or=(…)`.

All stores treat nulls in the same way: a null column satisfies `is_null=true` and no other condition, including `ne`
and `not_in`. (Like SQL; in Elasticsearch, where `must_not` matches missing values, both are queried.)
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from headwater.api.errors import BadParameter
from headwater.api.requests.parameters import Parameters, check_text, read_boolean, read_value
from headwater.eventlog.times import shortened
from headwater.projections.table.types import ColumnType
from headwater.projections.view import View

LETTERS: Final = 0x20000
"""Characters from here on have no case: they are ideographs, tags, and for private use."""
BLOCK: Final = 256
RANGES: Final = ("gt", "gte", "lt", "lte")
LISTS: Final = ("in", "not_in")
"""Operators whose value is a list."""
TEXTS: Final = ("prefix", "ieq", "iprefix")
SEVERAL: Final = {"eq": "in", "ne": "not_in", "in": "in", "not_in": "not_in"} | {name: name for name in TEXTS}
"""Operators that may be repeated, and their combined operator: any of the values, or none of them."""
SEALED_WITH: Final = "sealed_with"
"""Of the view of all events, and not of requests: the record has a text that is sealed with any of these keys."""
SEALED_COPY: Final = "sealed_copy"
"""Likewise of a stream view: the column is, or has, such a text."""
OR: Final = "or"
MAX_VALUES: Final = 1000
MAX_PATTERNS: Final = 100
"""Values of one text operator."""
MAX_PATTERN_CHARACTERS: Final = 150
"""Characters that are matched ignoring case: Elasticsearch allows regular expressions of at most 1,000."""
MAX_CONDITIONS: Final = 100
"""Of one `or`."""
MAX_ORS: Final = 20
QUOTING: Final = 'put a value with a comma in double quotes, and double each quote in it: "a,b"'
FILTER_DESCRIPTIONS: Final = {
    "eq": "equals any of these",
    "ne": "not null, and none of these",
    "in": f"any of these; {QUOTING}",
    "not_in": f"not null, and none of these; {QUOTING}",
    "gt": "greater than this",
    "gte": "greater than or equal to this",
    "lt": "less than this",
    "lte": "less than or equal to this",
    "prefix": "begins with any of these",
    "ieq": "equals any of these, ignoring case",
    "iprefix": "begins with any of these, ignoring case",
    "is_null": "true: null; false: not null",
}
"""The meaning of each operator, for the OpenAPI document."""
OR_DESCRIPTION: Final = (
    "at least one of these conditions, such as `(city=GALT,beds.gte=3,zip.in=(95815,95820))`; put a value with a comma "
    "or a parenthesis in double quotes; if `or` is repeated, each one must be true"
)
_NAME: Final = re.compile(r"[^=,()]*")


def folded(character: str) -> str:
    """The same character for all those that differ in case only."""
    folded_text = character.casefold()
    if (
        len(folded_text) > 1
    ):  # full case folding, as of a sharp s to "ss"; simple case folding then has the lower case, if any
        folded_text = character.lower()
    return folded_text if len(folded_text) == 1 else character


def in_either_case(text: str) -> str:
    """A regular expression for `text` that ignores case, for PostgreSQL, Lucene and Python."""
    return "".join(map(_either_case, text))


def _either_case(character: str) -> str:
    alike = _alike().get(folded(character), character)
    if len(alike) > 1:
        return f"[{alike}]"
    plain = not character.isascii() or character.isalnum() or not character.isprintable()
    return character if plain else f"\\{character}"


@cache
def _alike() -> Mapping[str, str]:
    """The characters that are folded to the same one, if there are several."""
    similar: dict[str, str] = {}
    for start in range(0, LETTERS, BLOCK):
        block = "".join(map(chr, range(start, start + BLOCK)))
        if block.casefold() != block:  # few blocks have letters with two cases
            for character in block:
                if (of := folded(character)) != character:
                    similar[of] = similar.get(of, of) + character
    return similar


_alike()  # in a worker's start, and not in its first request


@dataclass(frozen=True, slots=True)
class Filter:
    """`column operator values`.

    operator: `in` (any of the values) or `not_in` (none of them); one of TEXTS, SEALED_WITH or SEALED_COPY (any of the
    values); one of RANGES or `is_null` (one value).
    """

    column: str
    operator: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one of some filters."""

    filters: tuple[Filter, ...]


Condition = Filter | AnyOf


def operators(kind: ColumnType) -> tuple[str, ...]:
    """The operators that a column of this type can be filtered by."""
    match kind:
        case ColumnType.TEXT:
            return ("eq", "ne", *LISTS, *RANGES, *TEXTS, "is_null")
        case ColumnType.INTEGER | ColumnType.FLOAT | ColumnType.TIME | ColumnType.DATE | ColumnType.UUID:
            return ("eq", "ne", *LISTS, *RANGES, "is_null")
        case _ if kind.is_decimal:
            return ("eq", "ne", *LISTS, *RANGES, "is_null")
        case ColumnType.BOOLEAN:
            return ("eq", "ne", *LISTS, "is_null")
        case ColumnType.POINT:
            return ("is_null",)
        case _:
            return ()


def read_filters(
    view: View, parameters: Parameters, reserved: Sequence[str], clear: Collection[str] = ()
) -> tuple[Condition, ...]:
    """All conditions in `parameters`; reserved: other parameters. Raises BadParameter.

    clear: the personal columns that the caller may filter by, as the store has them in plaintext.
    """
    plain = _Collected()
    ors: list[AnyOf] = []
    for name, text in parameters:
        if name == OR:
            ors.append(_read_or(view, text, clear))
            continue
        column, operator = _target(view, name, reserved, clear)
        texts = split_list(name, text) if operator in LISTS else [text]
        plain.add(name, column, operator, _values(view, name, column, operator, texts))
    if len(ors) > MAX_ORS:
        raise BadParameter(OR, f"is given more than {MAX_ORS} times: send several requests")
    return (*plain.filters, *ors)


def split_list(name: str, text: str) -> list[str]:
    """The values of `a,b`; raises BadParameter. Nothing is trimmed: `a,,b` has three values, the second is empty."""
    scanner = _Scanner(name, text)
    items = list(scanner.values(","))
    if not scanner.ended:
        raise BadParameter(name, f"has text after a closing quote: {QUOTING}")
    return items


class _Collected:
    """Conditions that must all be true; repeated ones for a column are combined."""

    def __init__(self) -> None:
        self._several: dict[tuple[str, str], list[Any]] = {}
        self._once: dict[tuple[str, str], Any] = {}

    @property
    def filters(self) -> tuple[Filter, ...]:
        several = (Filter(column, operator, tuple(values)) for (column, operator), values in self._several.items())
        once = (Filter(column, operator, (value,)) for (column, operator), value in self._once.items())
        return (*several, *once)

    def add(self, name: str, column: str, operator: str, values: Sequence[Any]) -> None:
        if operator not in SEVERAL:
            if (column, operator) in self._once:
                raise BadParameter(name, "is given more than once: give it once")
            self._once[column, operator] = values[0]
            return
        known = self._several.setdefault((column, SEVERAL[operator]), [])
        known += values
        maximum = MAX_PATTERNS if operator in TEXTS else MAX_VALUES
        if len(known) > maximum:
            raise BadParameter(name, f"has more than {maximum} values: send several requests")


def _target(view: View, name: str, reserved: Sequence[str], clear: Collection[str]) -> tuple[str, str]:
    """Column and operator of a condition's name; raises BadParameter."""
    column, dot, operator = name.partition(".")
    if column in view.looked_up:
        raise BadParameter(shortened(name), only_shown(view, column, "filter"), tuple(view.types))
    if column not in view.types:
        raise BadParameter(shortened(name), f'is not a column of "{view.name}"', (*view.types, *reserved))
    if column in view.personal and column not in clear:
        raise BadParameter(
            name,
            "is personal: rows hold its ciphertext, which cannot be compared. Callers with the scope "
            "personal can filter by columns that the store has in plaintext",
        )
    allowed = operators(view.types[column])
    operator = operator if dot else "eq"
    if not allowed:
        raise BadParameter(
            shortened(name), f'cannot filter by "{column}", a {view.types[column].value}: use another column'
        )
    if operator not in allowed:
        known = [f"{column}.{operator}" for operator in allowed]
        raise BadParameter(
            shortened(name), f'uses "{shortened(operator)}", which is not an operator for {column}', known
        )
    return column, operator


def _values(view: View, name: str, column: str, operator: str, texts: Sequence[str]) -> list[Any]:
    for text in texts:
        check_text(name, text)
        if operator in ("ieq", "iprefix") and len(text) > MAX_PATTERN_CHARACTERS:
            raise BadParameter(
                name, f"has {len(text)} characters: at most {MAX_PATTERN_CHARACTERS} are allowed if case is ignored"
            )
    if operator == "is_null":
        return [read_boolean(name, text) for text in texts]
    return [read_value(name, view.types[column], text) for text in texts]


def _read_or(view: View, text: str, clear: Collection[str]) -> AnyOf:
    """The filters of `(city=GALT,beds.gte=3)`; raises BadParameter."""
    check_text(OR, text)
    scanner = _Scanner(OR, text)
    filters: list[Filter] = []
    scanner.take("(")
    while not filters or scanner.follows(","):
        if filters:
            scanner.take(",")
        name = scanner.name()
        try:
            filters.append(_alternative(view, name, scanner, clear))
        except BadParameter as error:
            if error.parameter == OR:
                raise
            raise BadParameter(OR, f'has "{error.parameter}", which {error.problem}', error.known) from error
        if len(filters) > MAX_CONDITIONS:
            raise BadParameter(OR, f"has more than {MAX_CONDITIONS} conditions: send several requests")
    scanner.take(")")
    if not scanner.ended:
        raise scanner.wrong()
    return AnyOf(tuple(filters))


def _alternative(view: View, name: str, scanner: _Scanner, clear: Collection[str]) -> Filter:
    column, operator = _target(view, name, (), clear)
    if operator in LISTS and scanner.follows("("):
        scanner.take("(")
        texts = list(scanner.values(",", "()"))
        scanner.take(")")
    else:
        texts = [scanner.value(",()")]
    values = _Collected()
    values.add(name, column, operator, _values(view, name, column, operator, texts))
    (only,) = values.filters
    return only


class _Scanner:
    """Parses values from a parameter, from its beginning on."""

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text, self._at = name, text, 0

    @property
    def ended(self) -> bool:
        return self._at == len(self._text)

    def follows(self, character: str) -> bool:
        return self._text.startswith(character, self._at)

    def take(self, character: str) -> None:
        if not self.follows(character):
            raise self.wrong()
        self._at += 1

    def name(self) -> str:
        """The name before the next `=`; continues after it."""
        name_match = _NAME.match(self._text, self._at)
        assert name_match is not None  # noqa: S101 - it matches nothing, too
        self._at = name_match.end()
        self.take("=")
        return name_match[0]

    def values(self, separator: str, end: str = "") -> Iterator[str]:
        """Values up to `end` or the end of the text."""
        yield self.value(separator + end)
        while self.follows(separator):
            self._at += 1
            yield self.value(separator + end)

    def value(self, ends: str) -> str:
        """The next value: in quotes, or up to one of `ends`."""
        if self.follows('"'):
            return self._quoted()
        start = self._at
        while not self.ended and self._text[self._at] not in ends:
            self._at += 1
        return self._text[start : self._at]

    def _quoted(self) -> str:
        parts = []
        while self.follows('"'):  # again, if a quote is doubled
            end = self._text.find('"', self._at + 1)
            if end < 0:
                raise BadParameter(self._name, f"has an unclosed quote: {QUOTING}")
            parts.append(self._text[self._at + 1 : end])
            self._at = end + 1
        return '"'.join(parts)

    def wrong(self) -> BadParameter:
        rest = self._text[self._at :]
        there = f'"{shortened(rest)}"' if rest else "its end"
        shape = f"send {OR}=(city=GALT,beds.gte=3,zip.in=(1,2)); quote values with a comma or parentheses"
        return BadParameter(self._name, f"cannot be parsed from {there} on: {shape}")


def only_shown(view: View, column: str, verb: str) -> str:
    """Why a looked-up column cannot be filtered or sorted by."""
    lookup = view.looked_up[column]
    there = f'"{lookup.columns[column]}" in the view "{lookup.view}"'
    return f"is looked up when a row is read, not stored: {verb} by a stored column here, or by {there}"
