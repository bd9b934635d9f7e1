"""The text of a declaration, behind its fingerprint, which is stored: as it is written, with its limits and keys."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Final, TypeVar

Class = TypeVar("Class", bound=type)

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
    """A text that changes if the meaning of a declaration does, and is the same in every process.

    It is how a declaration is written, with the types of events in place of their classes; of what has no such form, as
    a user's own fold, it is the word of its class, and its fields.
    """
    match what:
        case type():
            return str(getattr(what, "type", None) or _word(what, what.__qualname__))
        case str():
            return json.dumps(what, ensure_ascii=False)
        case Mapping():
            return "{" + ", ".join(sorted(f"{described(key)}: {described(item)}" for key, item in what.items())) + "}"
        case tuple() | list():
            return "[" + ", ".join(map(described, what)) + "]"
        case Enum():
            return f"<{_word(type(what), type(what).__name__)}.{what.name}: {what.value!r}>"
        case _ if is_dataclass(what):
            word = _word(type(what), type(what).__name__)
            if (write := _WRITTEN.get(word)) is not None:
                return write(what)
            named = {field.metadata.get("word", field.name): getattr(what, field.name) for field in fields(what)}
            return _call(word, **named)
        case _:
            return repr(what)


def _word(cls: type, name: str) -> str:
    """The storage word of a class; its name if it has none, as folds of users may."""
    return str(vars(cls).get("__storage_word__", name))


def _call(word: str, *given: Any, **named: Any) -> str:
    texts = [*map(described, given), *(f"{name}={described(value)}" for name, value in named.items())]
    return f"{word}({', '.join(texts)})"


def _given(**named: Any) -> dict[str, Any]:
    return {name: value for name, value in named.items() if value}


def _total(fold: Any) -> str:
    if fold.cases and all(described(case_value) == "1" for case_value in fold.cases.values()):
        return f"count({', '.join(sorted(map(described, fold.cases)))})"
    return _call("add", fold.cases)


def _listed(fold: Any) -> str:
    cases = {case: entry.get("_value", entry) for case, entry in fold.cases.items()}
    if fold.by is None:
        return _call("collect", cases, limit=fold.limit, **({} if fold.highest else {"newest": False}))
    return _call("top", fold.limit, cases, by=fold.by, **({} if fold.highest else {"highest": False}))


def _parts(fold: Any) -> str:
    marks = _given(deleted_by=fold.deleted_by, restored_by=fold.restored_by)
    return _call("nested", fold.key_name, fold.key, fold.columns, limit=fold.limit, **marks)


def _arithmetic(of: Any) -> str:
    if of.operator == "-" and described(of.left) == "0":
        return _call("negative", of.right)
    return _call({"+": "plus", "-": "minus", "*": "times"}[of.operator], of.left, of.right)


def _derived(column: Any) -> str:
    """A column that is computed from folds: the class of what shows it, maybe with some arguments, says how."""
    first, *others = column.folds
    shown, arguments = getattr(column.shown, "func", column.shown), getattr(column.shown, "keywords", {})
    match _word(shown, shown.__qualname__):
        case "Quotient" if all(_word(type(case_value), "") == "Known" for case_value in others[0].cases.values()):
            return _call("average", first.cases)
        case "Quotient":
            return _call("ratio", first, *others)
        case "Edge":
            return _call("highest" if arguments["highest"] else "lowest", first)
        case "Held":
            return _call("distinct", first)
        case "Number":
            return _call("distinct", first.cases, limit=first.limit)
        case "Estimate":
            return _call("approximate_distinct", first.cases)
        case "Values":
            return described(first)
        case word:
            return _call(word, first, *others, **arguments)


_WRITTEN: Final[Mapping[str, Callable[[Any], str]]] = {
    "Field": lambda of: described(of.name),
    "Value": lambda of: _call("value", of.value) if isinstance(of.value, str) else described(of.value),
    "FromEnvelope": lambda of: _call("envelope", of.name),
    "KeyParts": lambda of: f"({', '.join(map(described, of.names))})",
    "ByKey": lambda of: _call("by_key", of.event, of.key),
    "Item": lambda of: _call("item", of.list, of.name),
    "Point": lambda of: _call("point", of.latitude, of.longitude),
    "When": lambda of: _call("when", of.condition, of.then, of.otherwise),
    "Arithmetic": _arithmetic,
    "Comparison": lambda of: _call(_COMPARISONS[of.operator], of.left, of.right),
    "Together": lambda of: _call("all_of" if of.word == "and" else "any_of", *of.parts),
    "Negation": lambda of: _call("negated", of.of),
    "Total": _total,
    "Latest": lambda of: _call("last" if of.highest else "first", of.cases, **_given(by=of.by)),
    "Current": lambda of: _call("current", of.row, of.cases[of.row]),
    "Bound": lambda of: _call("maximum" if of.highest else "minimum", of.cases),
    "Members": lambda of: _call("members", of.cases),
    "Listed": _listed,
    "Parts": _parts,
    "Derived": _derived,
}
"""By the word of a class in fingerprints, how a declaration writes it."""
