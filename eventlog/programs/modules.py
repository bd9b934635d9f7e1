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

from headwater.eventlog.errors import ModuleBroken, SettingError, UnknownModule
from headwater.eventlog.places import place_of, raised_at

Declaration = TypeVar("Declaration")

PACKAGE: Final = "headwater"
"""Headwater's own, in which all others are."""
SAMPLES: Final = "headwater.samples"
"""The package of the samples, a sub-package each."""
VARIABLE: Final = "HEADWATER_MODULES"
SAFE_PATH: Final = ("-P",)
"""Options of Python for the processes of Headwater: a folder beside a user's package must not hide a library."""
PROJECT_FILE: Final = "pyproject.toml"
"""Of the current folder: its `modules` under `[tool.headwater]` are loaded if VARIABLE is not set."""


@cache
def shipped_domains() -> tuple[str, ...]:
    """The names of the samples."""
    samples = importlib.import_module(SAMPLES)
    return tuple(sorted(module.name for module in pkgutil.iter_modules(samples.__path__) if module.ispkg))


def read_modules(text: str) -> tuple[str, ...]:
    """The names in a value of HEADWATER_MODULES, else in the project: of samples, and of a user's modules.

    Raises SettingError if there is none, because a deployment without its modules takes its own views for undeclared
    ones.
    """
    look_in_current_folder()
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip())) or project_modules()
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
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise SettingError(VARIABLE, "", f'your modules, or correct {file}: write modules = ["bank"], a list of names')
    return tuple(dict.fromkeys(names))


def look_in_current_folder() -> None:
    """Let Python find modules in the current folder, however this program was started, but after all others.

    So a folder there that is called like a library does not hide it.
    """
    here = str(Path.cwd())
    if not {"", here} & set(sys.path):
        sys.path.append(here)


def find(names: Sequence[str], kind: type[Declaration]) -> list[tuple[str, Declaration]]:
    """Every instance of `kind` that is an attribute of one of the modules `names` or of their sub-modules.

    names: as `read_modules` returns them; see `full_name`. Returns (name of the module where it was found
    first, the object) in the order of modules and attributes; an object that several modules import is listed once.
    Raises UnknownModule if there is no module of a name, and ModuleBroken if a module cannot be imported.
    """
    look_in_current_folder()
    declarations: dict[int, tuple[str, Declaration]] = {}
    for name in names:
        for module in _walk(full_name(name)):
            for value in vars(module).values():
                if isinstance(value, kind):
                    declarations.setdefault(id(value), (module.__name__, value))
    return list(declarations.values())


def full_name(name: str) -> str:
    """The package or module of a name in HEADWATER_MODULES: of a sample's short name, such as `orders`, the sample.

    A module of the user with that name is preferred, such as a copy of the sample.
    """
    if name not in shipped_domains():
        return name
    spec = importlib.util.find_spec(name)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    is_users = spec is not None and (spec.origin or any(pkgutil.iter_modules(folders)))
    return name if is_users else f"{SAMPLES}.{name}"


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


def domain_of(module: str) -> str | None:
    """The sample that the module of this name belongs to."""
    package, _, below = module.partition(f"{SAMPLES}.")
    domain = below.partition(".")[0]
    return domain if not package and domain in shipped_domains() else None


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
            raise UnknownModule(name, shipped_domains()) from error
        raise ModuleBroken(name, error, raised_at(error, name)) from error
    except (Exception, SystemExit) as error:  # a user's module may raise anything during the import
        raise ModuleBroken(name, error, raised_at(error, name)) from error
