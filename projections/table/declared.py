"""The text of a declaration, behind its fingerprint. It is stored, so renaming code must not change it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, TypeVar

Class = TypeVar("Class", bound=type)


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
