"""The text of a query function, for fingerprints: what it does, not how it is written."""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

_DOCUMENTED: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IGNORED: Final = frozenset({"returns", "annotation", "type_comment", "type_params", "kind", "ctx"})
NO_FUNCTION: Final = "its query must be a function that is declared with def in a module"


def query_digest(query: Callable[..., Any]) -> str:
    """A digest of the source of `query`, and of the functions, classes, constants and imports of its module that it
    uses.

    Comments, docstrings, formatting and annotations do not count, nor does the version of Python. Raises ValueError if
    `query` is not a function of a module, or has no source.
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
    texts = [f"{name} = {_shape(declared[name])}" for name in sorted(_reached(query.__name__, declared))]
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


def _reached(start: str, declared: Mapping[str, ast.AST]) -> set[str]:
    """The declared names that `start` uses, directly or through others, itself included."""
    reached, left = set[str](), {start}
    while left:
        name = left.pop()
        reached.add(name)
        left |= (set(_names(declared[name])) & declared.keys()) - reached
    return reached


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
