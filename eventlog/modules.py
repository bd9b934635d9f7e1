"""Finds declarations: objects of one kind in the modules of the packages that a deployment names."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import TypeVar

from eventlog.errors import ModuleBroken

Declaration = TypeVar("Declaration")


def find(packages: Sequence[str], kind: type[Declaration]) -> list[tuple[str, Declaration]]:
    """Every instance of `kind` that is an attribute of one of `packages` or of their sub-modules.

    Returns (name of the module where it was found first, the object) in the order of modules and attributes; an object
    that several modules import is listed once. Raises ModuleBroken if a module cannot be imported.
    """
    found: dict[int, tuple[str, Declaration]] = {}
    for package in packages:
        for module in _walk(package):
            for value in vars(module).values():
                if isinstance(value, kind):
                    found.setdefault(id(value), (module.__name__, value))
    return list(found.values())


def _walk(package: str) -> Iterator[ModuleType]:
    module = _load(package)
    yield module
    for child in sorted(info.name for info in pkgutil.iter_modules(getattr(module, "__path__", []))):
        if child != "__main__":  # a program's entry point, without declarations
            yield from _walk(f"{package}.{child}")


def _load(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:  # a user's module may raise anything during the import
        raise ModuleBroken(name, error) from error


def first_with(name: str, modules: Sequence[str]) -> object:
    """The attribute `name` of the first of `modules` that has it; raises AttributeError if none has it."""
    for module in modules:
        loaded = importlib.import_module(module)
        if hasattr(loaded, name):
            return getattr(loaded, name)
    raise AttributeError(f'none of {", ".join(modules)} has "{name}"')
