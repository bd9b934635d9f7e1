"""The commands that a process names in its code, so that a deployment without their aggregates is refused at its start.

`react` returns commands, and no annotation lists them. So this reads names: those in its code, and in the functions and
classes of the user that it names, and so on. A command that is found by other means, such as `getattr`, is not seen; it
is refused when it is sent.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

from headwater.commands.declaring.aggregate import Command
from headwater.eventlog.places import is_users, package_of


def named_commands(function: Callable[..., Any], state: type) -> list[type[Command]]:
    """The classes of commands that `function`, or what it names, names. state: a class whose methods count as well."""
    # a package that is installed like a library counts as well
    package = package_of(str(getattr(function, "__module__", "")))
    commands: dict[type[Command], None] = {}
    seen: set[int] = set()
    left: list[Any] = [function, state]
    while left:
        called = _function(left.pop())
        if id(called) in seen:
            continue
        seen.add(id(called))
        match called:
            case type() if issubclass(called, Command):
                if hasattr(called, "type"):
                    commands[called] = None
            case type() if _is_of_user(called, package):
                left += [made for made in map(_function, vars(called).values()) if isinstance(made, FunctionType)]
            case Mapping():
                left += called.values()
            case list() | tuple() | set() | frozenset():
                left += called
            case FunctionType() if _is_of_user(called, package):
                left += _named(called)
            case _:
                pass
    return list(commands)


def _function(member: Any) -> Any:
    """The function or class behind a method, a property, a partial call or a decorated function; else the same."""
    if isinstance(member, type):
        return member
    for inner in ("__func__", "func", "fget"):
        if callable(wrapped := getattr(member, inner, None)):
            return _function(wrapped)
    return inspect.unwrap(member) if callable(member) else member


def _named(function: FunctionType) -> list[Any]:
    """What the names in the code of `function` mean, as far as they are global, in a closure, or in such a module."""
    names = {name for code in _codes(function.__code__) for name in code.co_names}
    functions = [function.__globals__.get(name) for name in names]
    functions += map(_content, function.__closure__ or ())
    for value in functions:  # grows: `bank.domain.Open` is a name in a module in a module
        if isinstance(value, ModuleType):
            members = (vars(value).get(name) for name in names)
            functions += [member for member in members if not any(member is other for other in functions)]
    return functions


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _is_of_user(what: type | FunctionType, package: str) -> bool:
    if package_of(str(what.__module__)) == package:
        return True
    try:
        return is_users(inspect.getfile(what))
    except (OSError, TypeError):  # of Python itself
        return False
