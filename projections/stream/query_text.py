"""The text of a query function, for fingerprints: what it does, not how it is written."""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

_DOCUMENTED: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IGNORED: Final = frozenset({"returns", "annotation", "type_comment", "type_params", "kind", "ctx"})
FOLLOWING: Final = frozenset({"in_order", "pattern"})
"""Words of `projections` for which imported functions count too. They do not in older queries, whose digests are
stored."""
_WORDS: Final = ("projections", "commands")
"""Where declarations import their words from."""
NO_FUNCTION: Final = "its query must be a function that is declared with def in a module"


def query_digest(query: Callable[..., Any]) -> str:
    """A digest of the source of `query`, and of the functions, classes, constants and imports of its module that it
    uses.

    If it uses a word of FOLLOWING, what these import from other modules of the user counts as well. Comments,
    docstrings, formatting and annotations do not count, nor does the version of Python. Raises ValueError if `query`
    is not a function of a module, or has no source.
    """
    if not inspect.isfunction(query) or query.__qualname__ != query.__name__:
        raise ValueError(NO_FUNCTION)
    try:
        tree = ast.parse("".join(inspect.findsource(query)[0]))
    except (OSError, SyntaxError) as error:
        raise ValueError(f"the source of its query cannot be read: {error}") from error
    declared = dict(_declared(tree))
    if query.__name__ not in declared:
        raise ValueError(NO_FUNCTION)
    reached = {name: declared[name] for name in sorted(_reached({query.__name__}, declared))}
    texts = [f"{name} = {_shape(node)}" for name, node in reached.items()]
    if any(map(_is_following, _all_nodes(reached.values()))):
        texts += _imported_texts(query, reached.values())
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def _declared(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """What the module declares or imports, by name."""
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node
            case ast.Assign(targets=targets, value=value):
                yield from ((each.id, value) for each in targets if isinstance(each, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from ((each.asname or each.name.partition(".")[0], node) for each in names)
            case _:
                pass


def _reached(start: Iterable[str], declared: Mapping[str, ast.AST]) -> set[str]:
    """The declared names that `start` use, directly or through others, themselves included."""
    reached, left = set[str](), set(start)
    while left:
        name = left.pop()
        reached.add(name)
        left |= (set(_names(declared[name])) & declared.keys()) - reached
    return reached


def _imported_texts(query: Callable[..., Any], nodes: Iterable[ast.AST]) -> list[str]:
    """What the imports among `nodes` take from modules of the user, and what that imports, and so on; sorted.

    Raises ValueError if the source of such a module cannot be read.
    """
    ours, texts, seen = _Ours(query), set[str](), set[_Imported]()
    left = list(ours.imports(nodes, query.__module__))
    while left:
        each = left.pop()
        if each in seen:
            continue
        seen.add(each)
        declared = dict(_declared(ours.tree(each.module)))
        if each.name and each.name not in declared:
            raise ValueError(
                f'its query uses "{each.name}" of module "{each.module}", whose text cannot be found there: declare it '
                "in that module with def, class or ="
            )
        reached = {name: declared[name] for name in _reached([each.name] if each.name else declared, declared)}
        texts |= {f"{each.module}: {name} = {_shape(node)}" for name, node in reached.items()}
        left += ours.imports(reached.values(), each.module)
    return sorted(texts)


class _Imported(NamedTuple):
    """A name that is imported from a module of the user; empty: the whole module."""

    module: str
    name: str


class _Ours:
    """The user's modules: those of the package of the query, or of its folder if it is in no package."""

    def __init__(self, query: Callable[..., Any]) -> None:
        self._package = query.__module__.partition(".")[0]
        self._folder = Path(inspect.getfile(query)).parent if self._package == query.__module__ else None

    def tree(self, module: str) -> ast.Module:
        """The syntax tree of one of these modules."""
        try:
            spec = None if self._folder else find_spec(module)
            file = self._folder / f"{module}.py" if self._folder else Path((spec and spec.origin) or "")
            return ast.parse(file.read_text())
        except (ImportError, OSError, SyntaxError, ValueError) as error:
            raise ValueError(f'its query uses module "{module}", whose source cannot be read: {error}') from error

    def imports(self, nodes: Iterable[ast.AST], within: str) -> Iterator[_Imported]:
        """What the imports among `nodes`, of the module `within`, take from these modules."""
        for node in _all_nodes(nodes):
            match node:
                case ast.Import(names=names):
                    yield from (_Imported(each.name, "") for each in names if self._has(each.name))
                case ast.ImportFrom(names=names) if self._has(module := _full_name(node, within)):
                    for each in names:
                        inner = f"{module}.{each.name}"
                        yield _Imported(inner, "") if self._is_module(inner, module) else _Imported(module, each.name)
                case _:
                    pass

    def _has(self, module: str) -> bool:
        if module in _WORDS:
            return False
        if self._folder is not None:
            return (self._folder / f"{module}.py").exists()
        return module.partition(".")[0] == self._package

    def _is_module(self, name: str, parent: str) -> bool:
        spec = find_spec(parent)
        return spec is not None and spec.submodule_search_locations is not None and find_spec(name) is not None


def _full_name(node: ast.ImportFrom, within: str) -> str:
    """The name of the module that `node` imports from, in the module `within`."""
    if not node.level:
        return node.module or ""
    spec = find_spec(within)
    is_package = spec is not None and spec.submodule_search_locations is not None
    parts = within.split(".")
    base = parts[: len(parts) - node.level + is_package]
    return ".".join([*base, *([node.module] if node.module else [])])


def _is_following(node: ast.AST) -> bool:
    """Whether it is a word that runs a function of the user in Spark's workers."""
    match node:
        case ast.ImportFrom(module=str() as module, names=names) if module.partition(".")[0] == "projections":
            return any(each.name in FOLLOWING for each in names)
        case ast.Attribute(value=ast.Name(id="projections"), attr=name):
            return name in FOLLOWING
        case _:
            return False


def _all_nodes(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for node in nodes:
        yield from ast.walk(node)


def _names(node: ast.AST) -> Iterator[str]:
    """The names in a syntax tree."""
    if isinstance(node, ast.Name):
        yield node.id
    for field, value in ast.iter_fields(node):
        if field not in _IGNORED:
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, ast.AST):
                    yield from _names(each)


def _shape(value: object) -> str:
    """A text of a syntax tree; empty parts are left out, because versions of Python differ in them."""
    match value:
        case ast.AST():
            parts = [(name, each) for name, each in ast.iter_fields(value) if name not in _IGNORED]
            if isinstance(value, _DOCUMENTED) and ast.get_docstring(value) is not None:
                parts = [(name, each[1:] if name == "body" else each) for name, each in parts]
            inner = ", ".join(f"{name}={_shape(each)}" for name, each in parts if each not in (None, []))
            return f"{type(value).__name__}({inner})"
        case list():
            return f"[{', '.join(map(_shape, value))}]"
        case _:
            return repr(value)
