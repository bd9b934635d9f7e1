"""Lineages as Spark SQL; `commands/declaring/lineage_values.py` defines the semantics.

A scalar is read from a variant, which keeps the JSON type. Nested models and lists are made as JSON texts, because a
variant would sort the fields and write numbers otherwise: null in SQL is what was not recorded, 'null' is null.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, assert_never

import orjson

from headwater.commands.declaring.lineage_values import NUMBER, WHOLE
from headwater.commands.declaring.lineages import (
    Changed,
    Constant,
    Converted,
    Gone,
    Into,
    ItemItself,
    Items,
    Lineage,
    Member,
    Part,
    Recorded,
    With,
    leaves,
)
from headwater.commands.declaring.steps import (
    MAX_NUMBER_CHARACTERS,
    Conversion,
    Kind,
    Parsed,
    Recoded,
    Rounded,
    Scaled,
    Widened,
    Written,
)
from headwater.commands.declaring.times import TIME
from headwater.projections.table.expressions import identifier, literal
from headwater.projections.table.types import PYTHON_TYPES, SPARK_TYPES, ColumnType

VARIANTS, TEXTS = "older_variants", "older_texts"
"""Columns with the fields of older versions: as variants, and as JSON texts if the field is not a scalar.

What a nested model or a list is made from is in both.
"""

_TYPE_OF: Final[Mapping[Kind, str]] = {
    str: "= 'STRING'",
    int: "= 'BIGINT'",
    float: "rlike '^(BIGINT|DOUBLE|DECIMAL)'",
    bool: "= 'BOOLEAN'",
}
NOTHING: Final = "cast(null as string)"


def field_sql(lineage: Lineage, kind: Kind) -> str:
    """Spark SQL of a field of this kind: null if the value has another one.

    Infinity passes through every step, and becomes null at the end.
    """
    made = _Compiling(_Scope(), itertools.count()).value(lineage, kind)
    return _finite(made) if kind is float else made


def _finite(number: str) -> str:
    return f"if(abs({number}) <= 1.7976931348623157E308D, {number}, null)"


class _Scope:
    """What a lineage starts from: the recorded fields of the event."""

    def variant(self, name: str) -> str:
        """Spark SQL of the field with this name."""
        return f"{VARIANTS}.data.{identifier(name)}"

    def text(self, name: str) -> str:
        """Spark SQL of its text, which of a text is without quotes."""
        return f"{TEXTS}.data.{identifier(name)}"

    def item(self) -> str:
        """Spark SQL of the JSON text of the item."""
        raise AssertionError("the event is no item of a list")


@dataclass(frozen=True)
class _Object(_Scope):
    """The fields of a nested model, which is in this variable as two maps."""

    variable: str

    def variant(self, name: str) -> str:
        return f"{self.variable}.variants[{literal(name)}]"

    def text(self, name: str) -> str:
        return f"{self.variable}.texts[{literal(name)}]"


@dataclass(frozen=True)
class _Item(_Scope):
    """An item of a list, whose JSON text is in this variable."""

    variable: str

    def item(self) -> str:
        return self.variable


@dataclass(frozen=True)
class _Compiling:
    """Compiles lineages that start from what `scope` has. numbers: of the variables, so that none has two meanings."""

    scope: _Scope
    numbers: itertools.count[int]

    def value(self, lineage: Lineage, kind: Kind) -> str:
        """Spark SQL of a value, which must be of this kind: null if it is not."""
        match lineage:
            case Recorded():
                text = self.scope.text(lineage.name)
                return text if kind is object else _typed(self.scope.variant(lineage.name), kind)
            case Constant():
                return _constant(lineage.value, kind)
            case Converted():
                return _converted(lineage.how, self.value(lineage.of, lineage.source), lineage.source)
            case Part():
                cut = literal("".join(c if c.isalnum() else "\\" + c for c in lineage.at))
                nothing = ", ".join(["''"] * lineage.parts)
                text = self.value(lineage.of, str)
                return f"get(concat(split({text}, {cut}, {lineage.parts}), array({nothing})), {lineage.number})"
            case _:
                parsed = f"concat('{{\"value\":', {self.json(lineage)}, '}}')"
                if kind is object:
                    return f"from_json({parsed}, 'value string').value"
                return self._let(f"from_json({parsed}, 'value variant').value", lambda made: _typed(made, kind))

    def json(self, lineage: Lineage) -> str:
        """Spark SQL of the JSON text of a value, 'null' if it has a wrong type."""
        match lineage:
            case Recorded():
                return _exact(self.scope.variant(lineage.name), self.scope.text(lineage.name))
            case ItemItself():
                return self.scope.item()
            case Gone():
                return NOTHING
            case Constant():
                return literal(orjson.dumps(lineage.value).decode())
            case Converted() | Part():
                return f"if({self.json(_start(lineage))} is null, null, coalesce({self._scalar(lineage)}, 'null'))"
            case Member():
                return self._let(self.json(lineage.of), lambda of: _of_object(of, _member(of, lineage.name)))
            case Changed():
                return self._let(self.json(lineage.of), lambda of: _of_object(of, self._changed(of, lineage)))
            case Items():
                return self._let(self.json(lineage.of), lambda of: self._items(of, lineage.each))
            case With():
                return self._let(self.json(lineage.of), lambda of: self._values(lineage.into, of))
            case _:
                assert_never(lineage)

    def _scalar(self, lineage: Converted | Part) -> str:
        """Spark SQL of the JSON text of a converted value; null if there is none."""
        kind = str if isinstance(lineage, Part) else _kind(lineage.how, lineage.source)
        if kind is object:  # of a field that was dropped later: nobody reads it
            return NOTHING
        value = self.value(lineage, kind)
        if kind is str:
            return _quoted(value)
        # a variant has no negative zero
        return f"cast({f'{_finite(value)} + 0D' if kind is float else value} as string)"

    def _changed(self, of: str, lineage: Changed) -> str:
        def made(members: str) -> str:
            within = _Compiling(_Object(members), self.numbers)
            return self._with_fields(members, {name: within.json(each) for name, each in lineage.fields})

        return self._let(_members(of), made)

    def _items(self, of: str, each: Lineage) -> str:
        text, variant, item = (self._variable() for _ in range(3))
        found = (
            f"zip_with(from_json({of}, 'array<string>'), from_json({of}, 'array<variant>'), "
            f"({text}, {variant}) -> {_exact(variant, text)})"
        )
        made = _Compiling(_Item(item), self.numbers).json(each)
        joined = f"array_join(transform({found}, {item} -> coalesce({made}, 'null')), ',')"
        return f"case when startswith({of}, '[') then concat('[', {joined}, ']') when {of} is not null then 'null' end"

    def _values(self, into: Into, of: str) -> str:
        """Spark SQL of an object with values; `of` is a variable."""
        values = [self.json(each) for each in leaves(into)]
        array = f"array({', '.join(values)})"
        return self._let(array, lambda made: self._with(of, into, [f"{made}[{at}]" for at in range(len(values))]))

    def _with(self, of: str, into: Into, values: Sequence[str]) -> str:
        """Spark SQL of an object, in the variable `of`, with the values of the leaves of `into`."""
        made: dict[str, str] = {}
        end = 0
        for name, each in into.fields:
            start, end = end, end + (len(leaves(each)) if isinstance(each, Into) else 1)
            made[name] = self._inside(of, name, each, values[start:end]) if isinstance(each, Into) else values[start]
        named = ", ".join(map(_named, made, made.values()))
        alone = f"concat('{{', array_join(array_compact(array({named})), ','), '}}')"
        recorded = f"array_compact(array({', '.join(values)}))"
        if into.nullable:
            alone = f"if(exists({recorded}, value -> value <> 'null'), {alone}, 'null')"
        among = self._let(_members(of), lambda members: self._with_fields(members, made))
        return (
            f"case when size({recorded}) = 0 then {of} when startswith({of}, '{{') then {among} "
            f"when coalesce({of}, 'null') = 'null' then {alone} else 'null' end"
        )

    def _inside(self, of: str, name: str, into: Into, values: Sequence[str]) -> str:
        before = f"if(startswith({of}, '{{'), {_member(of, name)}, null)"
        return self._let(before, lambda inner: self._with(inner, into, values))

    def _with_fields(self, members: str, made: Mapping[str, str]) -> str:
        """Spark SQL of an object with other fields behind those that stay; `members` is a variable."""
        name, names = self._variable(), ", ".join(map(literal, made))
        value = _exact(f"{members}.variants[{name}]", f"{members}.texts[{name}]")
        others = f"filter(map_keys({members}.texts), {name} -> {name} not in ({names}))"
        same = f"transform({others}, {name} -> concat({_quoted(name)}, ':', {value}))"
        fields = ", ".join(map(_named, made, made.values()))
        return f"concat('{{', array_join(concat({same}, array_compact(array({fields}))), ','), '}}')"

    def _let(self, value: str, body: Callable[[str], str]) -> str:
        """Spark SQL of what a body makes of a value, which is computed once."""
        if value.isidentifier():
            return body(value)
        variable = self._variable()
        return f"transform(array({value}), {variable} -> {body(variable)})[0]"

    def _variable(self) -> str:
        return f"v{next(self.numbers)}"


def _start(lineage: Lineage) -> Lineage:
    """What a converted value is made from; only without that is there none."""
    return _start(lineage.of) if isinstance(lineage, Converted | Part) else lineage


def _kind(how: Conversion, source: Kind) -> Kind:
    """The kind of converted values."""
    match how:
        case Scaled():
            return source
        case Rounded():
            return int
        case Parsed():
            return how.kind
        case Written() | Recoded():
            return str
        case Widened():
            return float
        case _:
            assert_never(how)


def _quoted(text: str) -> str:
    return f"to_json(cast({text} as variant))"


def _exact(variant: str, text: str) -> str:
    """Spark SQL of the JSON text of a value from both its forms: only the variant tells the text "1" from 1."""
    other = f"if(schema_of_variant({variant}) = 'STRING', to_json({variant}), coalesce({text}, 'null'))"
    return f"if({variant} is null, null, {other})"


def _of_object(of: str, made: str) -> str:
    """What is made of an object; null of another value. `of` is a variable."""
    return f"case when startswith({of}, '{{') then {made} when {of} is not null then 'null' end"


def _member(of: str, name: str) -> str:
    column = identifier(name)
    texts, variants = (f"from_json({of}, {literal(f'{column} {kind}')})" for kind in ("string", "variant"))
    return _exact(f"{variants}.{column}", f"{texts}.{column}")


def _members(of: str) -> str:
    """Spark SQL of an object's fields, in both forms."""
    texts, variants = (f"from_json({of}, 'map<string,{kind}>')" for kind in ("string", "variant"))
    return f"struct({texts} as texts, {variants} as variants)"


def _named(name: str, value: str) -> str:
    """Spark SQL of a field of an object; null if there is no value."""
    return f"concat({literal(orjson.dumps(name).decode() + ':')}, {value})"


def _typed(variant: str, kind: Kind) -> str:
    """Spark SQL of a variant's value of this kind; null if it has another one."""
    if PYTHON_TYPES[kind] is ColumnType.TIME:
        return f"try_cast({_matching(_typed(variant, str), TIME)} as timestamp)"
    own = SPARK_TYPES[PYTHON_TYPES[kind]]
    return f"if(schema_of_variant({variant}) {_TYPE_OF[kind]}, try_cast({variant} as {own}), null)"


def _constant(value: Any, kind: Kind) -> str:
    own = SPARK_TYPES[PYTHON_TYPES.get(kind, ColumnType.JSON)]
    if value is None:
        return f"cast(null as {own})"
    if isinstance(value, str):
        return f"cast({literal(value)} as {own})"
    return f"cast({literal(orjson.dumps(value).decode())} as {own})"


def _converted(how: Conversion, of: str, source: Kind) -> str:
    match how:
        case Scaled():
            if source is int:
                return f"try_multiply({of}, cast({literal(str(how.by))} as bigint))"
            return f"({of} * {_double(how.by)})"
        case Rounded():
            scaled = f"({of} * {_double(how.times)})"
            return f"if(abs({scaled}) < 9223372036854775808D, cast(rint({scaled}) as bigint), null)"
        case Parsed():
            pattern = WHOLE if how.kind is int else NUMBER
            number = _matching(of, f"(?=.{{1,{MAX_NUMBER_CHARACTERS}}}\\z){pattern}")
            return f"try_cast({number} as {SPARK_TYPES[PYTHON_TYPES[how.kind]]})"
        case Written():
            return f"cast({of} as string)"
        case Widened():
            return f"cast({of} as double)"
        case Recoded():
            words = " ".join(f"when {literal(old)} then {literal(new)}" for old, new in how.words)
            return f"(case {of} {words} else {of} end)" if words else of
        case _:
            assert_never(how)


def _double(number: float) -> str:
    return f"cast({literal(repr(float(number)))} as double)"


def _matching(text: str, pattern: str) -> str:
    """The text if all of it matches, else an empty text."""
    whole = literal(f"\\A(?:{pattern})\\z")
    return f"regexp_extract({text}, {whole}, 0)"
