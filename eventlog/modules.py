"""Decides which modules a deployment loads, and finds the declarations in them."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeVar

from eventlog.errors import AmbiguousModule, ModuleBroken, SettingError, UnknownModule
from eventlog.places import place_of, raised_at

Declaration = TypeVar("Declaration")

ROOMS: Final = (
    "eventlog.sources",
    "commands.aggregates",
    "commands.observations",
    "commands.processes",
    "projections.views",
)
"""The packages that contain the shipped domains. A domain has a sub-package with its name in each one it needs."""
VARIABLE: Final = "HEADWATER_MODULES"
SAFE_PATH: Final = ("-P",)
"""Options of Python for the processes of Headwater: a folder `commands` beside a user's package must not hide ours."""
PROJECT_FILE: Final = "pyproject.toml"
"""Of the current folder: its `modules` under `[tool.headwater]` are loaded if VARIABLE is not set."""


@cache
def shipped_domains() -> Mapping[str, tuple[str, ...]]:
    """The packages of each shipped domain, by its name."""
    found: dict[str, tuple[str, ...]] = {}
    for room in ROOMS:
        for info in pkgutil.iter_modules(importlib.import_module(room).__path__):
            if info.ispkg:
                found[info.name] = (*found.get(info.name, ()), f"{room}.{info.name}")
    return dict(sorted(found.items()))


def read_modules(text: str) -> tuple[str, ...]:
    """The shipped domains and user's modules in a value of HEADWATER_MODULES, else those of the project.

    Raises SettingError if it names none, because a deployment without its modules takes its own views for undeclared
    ones, and AmbiguousModule if a name is both a shipped domain and a module that Python finds.
    """
    look_in_current_folder()
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip())) or project_modules()
    for name in names:
        if name in shipped_domains() and (place := _place(name)):
            raise AmbiguousModule(name, place, shipped_domains()[name])
    if not names:
        samples = ", ".join(shipped_domains())
        raise SettingError(VARIABLE, text, f"your modules, such as bank.domain,bank.views, or to samples ({samples})")
    return names


def project_modules() -> tuple[str, ...]:
    """The modules that the project in the current folder names in its PROJECT_FILE; none if it names none.

    Raises SettingError if the file cannot be read, or has something else there than a list of names.
    """
    file = Path.cwd() / PROJECT_FILE
    try:
        document: Mapping[str, Any] = tomllib.loads(file.read_text()) if file.is_file() else {}
        names = document.get("tool", {}).get("headwater", {}).get("modules", [])
    except (OSError, ValueError, AttributeError) as error:
        raise SettingError(VARIABLE, "", f"your modules, or correct {file}, which cannot be read: {error}") from error
    if not isinstance(names, list) or not all(isinstance(each, str) and each for each in names):
        raise SettingError(VARIABLE, "", f'your modules, or correct {file}: write modules = ["bank"], a list of names')
    return tuple(dict.fromkeys(names))


def look_in_current_folder() -> None:
    """Let Python find modules in the current folder, however this program was started, but after all others.

    So a folder there that is called like a package of Headwater, or like a library, hides neither.
    """
    here = str(Path.cwd())
    if not {"", here} & set(sys.path):
        sys.path.append(here)


def find(names: Sequence[str], kind: type[Declaration], room: str) -> list[tuple[str, Declaration]]:
    """Every instance of `kind` that is an attribute of one of the modules `names` or of their sub-modules.

    names: as `read_modules` returns them. A shipped domain's name means its package in `room`, if it has one there.
    Returns (name of the module where it was found first, the object) in the order of modules and attributes; an object
    that several modules import is listed once. Raises UnknownModule if there is no module of a name, and ModuleBroken
    if a module cannot be imported.
    """
    look_in_current_folder()
    found: dict[int, tuple[str, Declaration]] = {}
    for name in names:
        for package in _packages(name, room):
            for module in _walk(package):
                for value in vars(module).values():
                    if isinstance(value, kind):
                        found.setdefault(id(value), (module.__name__, value))
    return list(found.values())


def by_name(
    found: Iterable[tuple[str, Declaration]],
    name_of: Callable[[Declaration], str],
    what: str,
    error: Callable[[str], Exception],
) -> dict[str, Declaration]:
    """The declarations of (module, declaration) pairs by their name.

    Raises `error`, naming both modules and places, if two have the same name. what: such as "a process".
    """
    modules: dict[str, str] = {}
    declared: dict[str, Declaration] = {}
    for module, declaration in found:
        name = name_of(declaration)
        if name in declared:
            places = "; ".join(filter(None, map(place_of, (declared[name], declaration))))
            raise error(
                f'"{modules[name]}" and "{module}" both declare {what} "{name}": rename one'
                + (f" ({places})" if places else "")
            )
        modules[name], declared[name] = module, declaration
    return declared


def _packages(name: str, room: str) -> tuple[str, ...]:
    shipped = shipped_domains().get(name)
    return (name,) if shipped is None else tuple(each for each in shipped if each == f"{room}.{name}")


def domain_of(module: str) -> str | None:
    """The shipped domain that the module of this name belongs to."""
    for domain, packages in shipped_domains().items():
        if any(f"{module}.".startswith(f"{package}.") for package in packages):
            return domain
    return None


def _place(name: str) -> str | None:
    """The path of the module `name`, which has no dot; None if Python finds none, or only a folder without modules."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        return None
    folders = list(spec.submodule_search_locations or ())
    return spec.origin or (folders[0] if any(pkgutil.iter_modules(folders)) else None)


def _walk(package: str) -> Iterator[ModuleType]:
    module = _load(package)
    yield module
    for child in sorted(info.name for info in pkgutil.iter_modules(getattr(module, "__path__", []))):
        if child != "__main__":  # a program's entry point, without declarations
            yield from _walk(f"{package}.{child}")


def _load(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if f"{name}.".startswith(f"{error.name}."):
            raise UnknownModule(name, tuple(shipped_domains())) from error
        raise ModuleBroken(name, error, raised_at(error, name)) from error
    except (Exception, SystemExit) as error:  # a user's module may raise anything during the import
        raise ModuleBroken(name, error, raised_at(error, name)) from error


def first_with(name: str, modules: Sequence[str]) -> object:
    """The attribute `name` of the first of `modules` that has it; raises AttributeError if none has it."""
    for module in modules:
        loaded = importlib.import_module(module)
        if hasattr(loaded, name):
            return getattr(loaded, name)
    raise AttributeError(f'none of {", ".join(modules)} has "{name}"')
