"""Syntax trees of modules: what they declare, what of it a name uses, and a text of that for fingerprints."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

FACE: Final = "headwater"
"""The package that declarations import their words from."""
_DOCUMENTED: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IGNORED: Final = frozenset({"returns", "annotation", "type_comment", "type_params", "kind", "ctx"})


def declared(tree: ast.Module) -> dict[str, ast.AST]:
    """What the module declares or imports, by name."""
    return dict(_declared(tree))


def reached(start: Iterable[str], known: Mapping[str, ast.AST]) -> dict[str, ast.AST]:
    """What of `known` these names use, directly or through others, themselves included; sorted by name."""
    found, left = set[str](), set(start)
    while left:
        name = left.pop()
        found.add(name)
        left |= (set(_names(known[name])) & known.keys()) - found
    return {name: known[name] for name in sorted(found)}


def all_nodes(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """These syntax trees with all their parts."""
    for node in nodes:
        yield from ast.walk(node)


def dotted(node: ast.AST) -> Iterator[list[str]]:
    """The names that a syntax tree uses, each with the attributes behind it: `rules.GUESSED` is two texts."""
    parts, inner = list[str](), node
    while isinstance(inner, ast.Attribute):
        parts, inner = [inner.attr, *parts], inner.value
    if isinstance(inner, ast.Name):
        yield [inner.id, *parts]
        return
    for each in _children(inner):
        yield from dotted(each)


def text_of(name: str, node: ast.AST) -> str:
    """What a fingerprint has of a declaration or an import by this name.

    Of a word of the face it is the word alone: other words that the same line imports do not count.
    """
    match node:
        case ast.ImportFrom(module=module, level=0, names=names) if module == FACE:
            (word,) = (each.name for each in names if (each.asname or each.name) == name)
            return f"{name} = {FACE}.{word}"
        case _:
            return f"{name} = {shape(node)}"


def shape(value: object) -> str:
    """A text of a syntax tree; empty parts are left out, because versions of Python differ in them."""
    match value:
        case ast.AST():
            parts = [(name, each) for name, each in ast.iter_fields(value) if name not in _IGNORED]
            if isinstance(value, _DOCUMENTED) and ast.get_docstring(value) is not None:
                parts = [(name, each[1:] if name == "body" else each) for name, each in parts]
            inner = ", ".join(f"{name}={shape(each)}" for name, each in parts if each not in (None, []))
            return f"{type(value).__name__}({inner})"
        case list():
            return f"[{', '.join(map(shape, value))}]"
        case _:
            return repr(value)


def _declared(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node
            case ast.Assign(targets=targets, value=value):
                yield from ((name, value) for each in targets for name in _assigned(each))
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from ((each.asname or each.name.partition(".")[0], node) for each in names)
            case _:
                pass


def _assigned(target: ast.expr) -> Iterator[str]:
    """The names that an assignment declares; several of them share the whole value."""
    match target:
        case ast.Name(id=name):
            yield name
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            for each in parts:
                yield from _assigned(each)
        case ast.Starred(value=part):
            yield from _assigned(part)
        case _:
            pass


def _names(node: ast.AST) -> Iterator[str]:
    """The names in a syntax tree."""
    if isinstance(node, ast.Name):
        yield node.id
    for each in _children(node):
        yield from _names(each)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    for field, value in ast.iter_fields(node):
        if field not in _IGNORED:
            yield from (each for each in (value if isinstance(value, list) else [value]) if isinstance(each, ast.AST))
