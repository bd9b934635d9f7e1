"""What all declarations share: their error, and checks of what users write, each with what to write instead."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

SHOWN_CHARACTERS: Final = 80
"""Of a value in a message."""
ALIKE: Final = 0.7
"""Of names, from 0 to 1: then the one was probably meant by the other."""

Class = TypeVar("Class", bound=type)
Arguments = ParamSpec("Arguments")
Made = TypeVar("Made")


class WrongDeclaration(Exception):
    """Something is declared wrongly: the message names it, and says what to write.

    The errors of each package for its own declarations derive from it.
    """


class WrongArguments(WrongDeclaration, ValueError):
    """A word of declarations is used with arguments that it does not have."""


def arguments_checked(error: Callable[[str, str], Exception], examples: Mapping[str, str]) -> Callable[[Class], Class]:
    """Makes a dataclass with a `name` refuse a call that does not fit its fields.

    error: makes the error of the declaration with this name (empty if the call has none) and problem. examples: by
    name, how to write the fields without a default.
    """

    def decorate(cls: Class) -> Class:
        fields = inspect.signature(cls)

        def check(given: Sequence[Any], named: Mapping[str, Any]) -> None:
            if problem := misfit(fields, given, named, examples):
                name = named.get("name", given[0] if given else "")
                raise error(name if isinstance(name, str) else "", f"it {problem}")

        cls.__init__ = _checked(cls.__init__, check, own=1)  # type: ignore[misc]
        return cls

    return decorate


def word(example: str) -> Callable[[Callable[Arguments, Made]], Callable[Arguments, Made]]:
    """Makes a class or function of declarations refuse a call that does not fit; the error shows the example."""

    def decorate(called: Callable[Arguments, Made]) -> Callable[Arguments, Made]:
        arguments, name = inspect.signature(called), called.__name__

        def check(given: Sequence[Any], named: Mapping[str, Any]) -> None:
            if problem := misfit(arguments, given, named):
                raise WrongArguments(f"{name}() {problem}: write {example}")

        if isinstance(called, type):
            called.__init__ = _checked(called.__init__, check, own=1)  # type: ignore[misc]
            return called
        return _checked(called, check)

    return decorate


def _checked(
    called: Callable[Arguments, Made], check: Callable[[Sequence[Any], Mapping[str, Any]], None], own: int = 0
) -> Callable[Arguments, Made]:
    """`called`, with its arguments checked before. own: how many of them no caller writes, such as `self`."""

    @wraps(called)
    def checked(*given: Arguments.args, **named: Arguments.kwargs) -> Made:
        check(given[own:], named)
        return called(*given, **named)

    return checked


def misfit(
    arguments: inspect.Signature, given: Sequence[Any], named: Mapping[str, Any], examples: Mapping[str, str] = {}
) -> str:
    """Why a call does not fit, to follow the name of what is called; empty if it fits. examples: see above."""
    known = [
        parameter.name for parameter in arguments.parameters.values() if parameter.kind is not parameter.VAR_POSITIONAL
    ]
    for name in named:
        if name not in known:
            return f"has no {meant(name, known)}"
    try:
        arguments.bind(*given, **named)
    except TypeError as error:
        lacking = [
            parameter.name
            for number, parameter in enumerate(arguments.parameters.values())
            if parameter.default is parameter.empty
            and parameter.kind is not parameter.VAR_POSITIONAL
            and parameter.name not in named
            and (number >= len(given) or parameter.kind is parameter.KEYWORD_ONLY)
        ]
        if not lacking:
            return f"cannot be called so ({error})"
        added = ", ".join(f"{name}={examples[name]}" for name in lacking if name in examples)
        return f"lacks {quoted(lacking)}" + (f": add {added}" if added else "")
    return ""


def meant(name: str, known: Iterable[str]) -> str:
    """A name that is not known, with the one that was probably meant, or all that are."""
    names = list(known)
    close = difflib.get_close_matches(name, names, 1, ALIKE) or [
        known_name for known_name in names if name and known_name.startswith(name)
    ]
    return f'"{name}" (did you mean "{close[0]}"?)' if close else f'"{name}" (it has {", ".join(names)})'


def quoted(names: Iterable[str]) -> str:
    """Names in a sentence."""
    return ", ".join(f'"{name}"' for name in names)


def shown(value: object) -> str:
    """A value in a sentence: a class by its name, others as Python writes them, in one line."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    try:
        text = " ".join(repr(value).split())
    except Exception:  # noqa: BLE001 - a value of users may fail to say what it is
        text = f"a {type(value).__name__}"
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"


def must_be_text(what: str, value: object, example: str) -> None:
    """Raise ValueError unless it is a text that is not empty."""
    if not isinstance(value, str):
        raise ValueError(f"{what} is {shown(value)}, which is no text: write {example}")
    if not value:
        raise ValueError(f"{what} is empty: write {example}")


def must_be_texts(what: str, value: object, example: str) -> None:
    """Raise ValueError unless it is a tuple or list of different texts that are not empty."""
    if not isinstance(value, tuple | list):
        raise ValueError(f"{what} is {shown(value)}, which is no tuple: write {example}")
    for item in value:
        must_be_text(f"a name in {what}", item, example)
    if repeated := [item for number, item in enumerate(value) if item in value[:number]]:
        raise ValueError(f'{what} has "{repeated[0]}" twice: remove one')


def must_be_version(what: str, value: object) -> None:
    """Raise ValueError unless it is an integer from 1."""
    if type(value) is not int or value < 1:
        raise ValueError(f"{what} is {shown(value)}: versions are the integers from 1")


def must_be_flag(what: str, value: object) -> None:
    """Raise ValueError unless it is True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{what} is {shown(value)}: write True or False")
