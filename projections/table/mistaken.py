"""What a fold or an expression becomes if it is written wrongly: the view that has it says why, and in which column."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, TypeVar, cast

from headwater.eventlog.declaring import misfit, shown

if TYPE_CHECKING:
    from headwater.commands.declaring.aggregate import Event

Arguments = ParamSpec("Arguments")
Made = TypeVar("Made")


@dataclass(frozen=True, eq=False)
class Mistaken:
    """Stands where a fold or an expression is expected; whoever asks for its type is told the problem."""

    problem: str

    @property
    def cases(self) -> Mapping[Any, Any]:
        """As of a fold without events."""
        return {}

    def kind(self, event: type[Event] | None = None) -> NoReturn:
        """Raise ValueError."""
        raise ValueError(self.problem)

    def fields(self) -> frozenset[str]:
        """As of an expression that reads none."""
        return frozenset()

    def _raise(self, *_: object) -> NoReturn:
        raise ValueError(self.problem)

    stored = spark = python = _raise


def in_views(example: str) -> Callable[[Callable[Arguments, Made]], Callable[Arguments, Made]]:
    """Makes a function of declarations return a `Mistaken` if it is called wrongly; the message shows the example.

    A view is not known where its folds are written, and its name tells more than the word alone.
    """

    def decorate(called: Callable[Arguments, Made]) -> Callable[Arguments, Made]:
        arguments, name = inspect.signature(called), called.__name__

        @wraps(called)
        def checked(*given: Arguments.args, **named: Arguments.kwargs) -> Made:
            values = [*given, *named.values()]
            cases = [case for value in values if isinstance(value, Mapping) for case in value]
            if mistaken := next((value for value in [*values, *cases] if isinstance(value, Mistaken)), None):
                return cast(Made, mistaken)
            problem = misfit(arguments, given, named)
            if not problem:
                try:
                    return called(*given, **named)
                except ValueError as error:
                    problem = str(error)
            return cast(Made, Mistaken(f"{name}() {problem}: write {example}"))

        return checked

    return decorate


def refuse_mistaken(what: str, value: object) -> None:
    """Raise ValueError with the problem of a value that is written wrongly. what: where it stands."""
    if isinstance(value, Mistaken):
        raise ValueError(f"{what}: {value.problem}")


def refuse_first(problems: Mapping[str, object]) -> None:
    """Raise ValueError with the first of these problems whose condition is true."""
    for problem, is_there in problems.items():
        if is_there:
            raise ValueError(problem)


def must_be(kind: Any, value: object, problem: str) -> Any:
    """The value, if it is of this type, or of one of several; otherwise raises ValueError.

    problem: what to say, in which {} stands for the value.
    """
    if not isinstance(value, kind):
        raise ValueError(problem.replace("{}", shown(value), 1))
    return value
