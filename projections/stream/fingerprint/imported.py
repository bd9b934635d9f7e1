"""What a query function imports from other modules of the user, for fingerprints."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

from headwater.projections.stream.fingerprint.syntax import FACE, all_nodes, declared, reached, text_of

_SAMPLES: Final = f"{FACE}.samples."
"""What of the face's package is as a user's modules are."""


def imported_texts(query: Callable[..., Any], nodes: Iterable[ast.AST]) -> list[str]:
    """What the imports among `nodes` take from modules of the user, and what that imports, and so on; sorted.

    Raises ValueError if the source of such a module cannot be read.
    """
    ours, texts, seen = Ours(query), set[str](), set[Imported]()
    left = list(ours.imports(nodes, query.__module__))
    while left:
        each = left.pop()
        if each in seen:
            continue
        seen.add(each)
        found = declared(ours.tree(each.module))
        if each.name and each.name not in found:
            raise ValueError(
                f'its query uses "{each.name}" of module "{each.module}", whose text cannot be found there: declare it '
                "in that module with def, class or ="
            )
        used = reached([each.name] if each.name else found, found)
        texts |= {f"{each.module}: {text_of(name, node)}" for name, node in used.items()}
        left += ours.imports(used.values(), each.module)
    return sorted(texts)


class Imported(NamedTuple):
    """A name that is imported from a module of the user; empty: the whole module."""

    module: str
    name: str


class Ours:
    """The user's modules: those of the package of the query, or of its folder if it is in no package."""

    def __init__(self, query: Callable[..., Any]) -> None:
        self._package = query.__module__.partition(".")[0]
        self._folder = Path(inspect.getfile(query)).parent if self._package == query.__module__ else None

    def tree(self, module: str) -> ast.Module:
        """The syntax tree of one of these modules."""
        try:
            spec = None if self._folder else _spec(module)
            file = self._folder / f"{module}.py" if self._folder else Path((spec and spec.origin) or "")
            return ast.parse(file.read_text())
        except (ImportError, OSError, SyntaxError, ValueError) as error:
            raise ValueError(f'its query uses module "{module}", whose source cannot be read: {error}') from error

    def imports(self, nodes: Iterable[ast.AST], within: str) -> Iterator[Imported]:
        """What the imports among `nodes`, of the module `within`, take from these modules."""
        for node in all_nodes(nodes):
            match node:
                case ast.Import(names=names):
                    yield from (Imported(each.name, "") for each in names if self._has(each.name))
                case ast.ImportFrom(names=names) if self._has(module := full_name(node, within)):
                    for each in names:
                        inner = f"{module}.{each.name}"
                        yield Imported(inner, "") if self._is_module(inner, module) else Imported(module, each.name)
                case _:
                    pass

    def at(self, path: Sequence[str]) -> Imported | None:
        """What a path such as `bank.rules.GUESSED` names, if it is in one of these modules."""
        module, *names = path
        if self._folder is None and module == self._package:
            while names and self._is_module(f"{module}.{names[0]}", module):
                module = f"{module}.{names.pop(0)}"
        return Imported(module, names[0] if names else "") if self._has(module) else None

    def _has(self, module: str) -> bool:
        if module == FACE or (module.startswith(f"{FACE}.") and not module.startswith(_SAMPLES)):
            return False
        if self._folder is not None:
            return (self._folder / f"{module}.py").exists()
        return module.partition(".")[0] == self._package

    def _is_module(self, name: str, parent: str) -> bool:
        spec = _spec(parent)
        return spec is not None and spec.submodule_search_locations is not None and _spec(name) is not None


def full_name(node: ast.ImportFrom, within: str) -> str:
    """The name of the module that `node` imports from, in the module `within`."""
    if not node.level:
        return node.module or ""
    spec = _spec(within)
    is_package = spec is not None and spec.submodule_search_locations is not None
    parts = within.split(".")
    base = parts[: len(parts) - node.level + is_package]
    return ".".join([*base, *([node.module] if node.module else [])])


def _spec(module: str) -> ModuleSpec | None:
    """Where a module is. Unlike `find_spec`, it imports no package, which could load Spark."""
    name, *parts = module.split(".")
    spec = find_spec(name)
    for part in parts:
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = PathFinder.find_spec(part, list(spec.submodule_search_locations))
    return spec
