"""The text of a declaration, behind its fingerprint, which is stored; and the same as it is written."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, Final, TypeVar

Class = TypeVar("Class", bound=type)

_NAMED: Final = re.compile(r"(?P<name>where |each [\w.]+: |[a-z][a-z0-9_]*=|)(?P<text>.*)", re.DOTALL)
"""A line of a declaration: the name of a column or field, and its text."""
_ENUM: Final = re.compile(r"<([\w.]+): '[^']*'>")
_COMPARISONS: Final = {
    "=": "equals",
    "<>": "differs",
    "<": "below",
    "<=": "at_most",
    ">": "above",
    ">=": "at_least",
}


def storage_word(word: str) -> Callable[[Class], Class]:
    """Gives a class the word that represents it in fingerprints. It stays if the class is renamed.

    A renamed field keeps its old name there with `field(metadata={"word": "old_name"})`.
    """

    def named(cls: Class) -> Class:
        cls.__storage_word__ = word  # type: ignore[attr-defined]
        return cls

    return named


def described(what: Any) -> str:
    """A text that changes if the meaning of a declaration does, and is the same in every process."""
    match what:
        case type():
            return str(getattr(what, "type", None) or _word(what, what.__qualname__))
        case Mapping():
            return "{" + ", ".join(sorted(f"{described(key)}: {described(each)}" for key, each in what.items())) + "}"
        case tuple() | list():
            return "[" + ", ".join(map(described, what)) + "]"
        case Enum():
            return f"<{_word(type(what), type(what).__name__)}.{what.name}: {what.value!r}>"
        case _ if is_dataclass(what):
            named = {each.metadata.get("word", each.name): getattr(what, each.name) for each in fields(what)}
            inner = ", ".join(f"{name}={described(value)}" for name, value in named.items() if name != "check")
            return f"{_word(type(what), type(what).__name__)}({inner})"
        case _ if callable(what) and hasattr(what, "func"):  # functools.partial
            return f"{described(what.func)}({described(what.keywords)})"
        case _:
            return repr(what)


def _word(cls: type, name: str) -> str:
    """The storage word of a class; its name if it has none, as folds of users may."""
    return str(vars(cls).get("__storage_word__", name))


class _Unknown(ValueError):
    """The text has another form, as that of a user's own fold may."""


@dataclass(frozen=True, eq=False)
class _Call:
    word: str
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class _Name:
    """A class of events, by its type, or the word of another class."""

    text: str


def as_written(line: str) -> str:
    """A line of a declaration as it is written; a line of another form is unchanged."""
    found = _NAMED.fullmatch(line)
    if found is None or "(" not in found["text"]:
        return line
    try:
        value = _value(ast.parse(_ENUM.sub(r"\1", found["text"]), mode="eval").body)
        return found["name"] + _text(value) if isinstance(value, _Call | dict) else line
    except (_Unknown, SyntaxError, KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError):
        return line


def _value(node: ast.expr) -> Any:
    """What `described` writes: it is an expression of Python, but for enums."""
    match node:
        case ast.Call(func, [ast.Dict() as named], []):  # a partial call
            return _Call(ast.unparse(func), _value(named))
        case ast.Call(func, [], named):
            return _Call(ast.unparse(func), {str(each.arg): _value(each.value) for each in named})
        case ast.Dict(keys, values):
            return {_value(key): _value(value) for key, value in zip(keys, values, strict=True) if key is not None}
        case ast.List(elements):
            return [*map(_value, elements)]
        case ast.Name() | ast.Attribute():
            return _Name(ast.unparse(node))
    return ast.literal_eval(node)


def _text(value: Any) -> str:
    match value:
        case _Call():
            write = _WORDS.get(value.word)
            return write(value.fields) if write else _call(value.word, **value.fields)
        case _Name():
            return value.text
        case str():
            return f'"{value}"'
        case dict():
            return "{" + ", ".join(f"{_text(key)}: {_text(each)}" for key, each in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_text, value)) + "]"
        case _:
            return repr(value)


def _call(word: str, *given: Any, **named: Any) -> str:
    texts = [*map(_text, given), *(f"{name}={_text(value)}" for name, value in named.items())]
    return f"{word}({', '.join(texts)})"


def _total(of: Mapping[str, Any]) -> str:
    cases = of["cases"]
    if cases and all(isinstance(each, _Call) and each.fields == {"value": 1} for each in cases.values()):
        return _call("count", *cases)
    return _call("add", cases)


def _latest(of: Mapping[str, Any]) -> str:
    return _call("last" if of["highest"] else "first", of["cases"], **_given(by=of["by"]))


def _listed(of: Mapping[str, Any], is_collected: bool) -> str:
    cases = {case: shown.get("_value", shown) for case, shown in of["cases"].items()}
    if is_collected:
        return _call("collect", cases, limit=of["limit"], **({} if of["highest"] else {"newest": False}))
    return _call("top", of["limit"], cases, by=of["by"], **({} if of["highest"] else {"highest": False}))


def _parts(of: Mapping[str, Any]) -> str:
    marks = _given(deleted_by=of["deleted_by"], restored_by=of["restored_by"])
    return _call("nested", of["key_name"], of["key"], of["columns"], limit=of["limit"], **marks)


def _current(of: Mapping[str, Any]) -> str:
    return _call("current", of["row"], of["cases"][of["row"]])


def _derived(of: Mapping[str, Any]) -> str:
    folds, shown = of["folds"], of["shown"]
    word = shown.word if isinstance(shown, _Call) else shown.text
    first = folds[0]
    match word, first.word:
        case "Quotient", _:
            second = folds[1].fields["cases"]
            if all(isinstance(each, _Call) and each.word == "Known" for each in second.values()):
                return _call("average", first.fields["cases"])
            return _call("ratio", *folds)
        case "Edge", _:
            return _call("highest" if shown.fields["highest"] else "lowest", first)
        case "Held", _:
            return _call("distinct", first)
        case "Number", _:
            return _call("distinct", first.fields["cases"], limit=first.fields["limit"])
        case "Estimate", _:
            return _call("approximate_distinct", first.fields["cases"])
        case "Values", "Listed":
            return _listed(first.fields, is_collected=first.fields["by"] is None)
        case "Values", "Parts":
            return _parts(first.fields)
    raise _Unknown(word)


def _arithmetic(of: Mapping[str, Any]) -> str:
    if of["operator"] != "-":
        raise _Unknown(of["operator"])
    is_negative = isinstance(of["left"], _Call) and of["left"].fields == {"value": 0}
    return _call("negative", of["right"]) if is_negative else _call("minus", of["left"], of["right"])


def _constant(of: Mapping[str, Any]) -> str:
    return _call("value", of["value"]) if isinstance(of["value"], str) else _text(of["value"])


def _given(**named: Any) -> dict[str, Any]:
    return {name: value for name, value in named.items() if value}


_WORDS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "Field": lambda of: _text(of["name"]),
    "Value": _constant,
    "FromEnvelope": lambda of: _call("envelope", of["name"]),
    "KeyParts": lambda of: f"({', '.join(map(_text, of['names']))})",
    "ByKey": lambda of: _call("by_key", of["event"], of["key"]),
    "Item": lambda of: _call("item", of["list"], of["name"]),
    "Point": lambda of: _call("point", of["latitude"], of["longitude"]),
    "When": lambda of: _call("when", of["condition"], of["then"], of["otherwise"]),
    "Arithmetic": _arithmetic,
    "Comparison": lambda of: _call(_COMPARISONS[of["operator"]], of["left"], of["right"]),
    "Together": lambda of: _call("all_of" if of["word"] == "and" else "any_of", *of["parts"]),
    "Negation": lambda of: _call("negated", of["of"]),
    "Total": _total,
    "Latest": _latest,
    "Current": _current,
    "Bound": lambda of: _call("maximum" if of["highest"] else "minimum", of["cases"]),
    "Members": lambda of: _call("members", of["cases"]),
    "Derived": _derived,
}
"""By the word of a class in fingerprints, how a declaration writes it."""
