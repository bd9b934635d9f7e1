"""Which queries run functions of the user in Spark's workers: for these, imported functions are in the fingerprint."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from headwater.projections.stream.fingerprint.imported import Imported, Ours, full_name
from headwater.projections.stream.fingerprint.syntax import FACE, all_nodes, declared, dotted, reached

FOLLOWING: Final = frozenset({"in_order", "pattern"})
"""Words for which imported functions count too. They do not for other queries, whose digests are
stored."""
_PROJECTIONS: Final = f"{FACE}.projections."


def is_following(query: Callable[..., Any], known: Mapping[str, ast.AST]) -> bool:
    """Whether `query` uses a word of FOLLOWING, itself or through what it imports from modules of the user.

    known: what its own module declares. An import of a whole module counts for what is used of it.
    """
    used = reached([query.__name__], known)
    return any(map(_is_a_word, all_nodes(used.values()))) or _reaches_a_word(query, known)


def _is_a_word(node: ast.AST) -> bool:
    match node:
        case ast.ImportFrom(module=str() as module, names=names) if module.startswith(_PROJECTIONS):
            return any(each.name in FOLLOWING for each in names)
        case ast.ImportFrom(module=module, names=names) if module == FACE:
            return any(each.name in FOLLOWING for each in names)
        case ast.Attribute(value=ast.Name(id="headwater"), attr=name):
            return name in FOLLOWING
        case _:
            return False


def _reaches_a_word(query: Callable[..., Any], known: Mapping[str, ast.AST]) -> bool:
    """By names: a module that is imported may use a word in what the query does not use."""
    ours, modules = Ours(query), {query.__module__: known}
    left, seen = [Imported(query.__module__, query.__name__)], set[Imported]()
    while left:
        each = left.pop()
        if each in seen:
            continue
        seen.add(each)
        if each.module not in modules:
            modules[each.module] = _declared(ours, each.module)
        for path in _imported_paths(each, modules[each.module]):
            if _is_of_a_word(path):
                return True
            found = ours.at(path)
            left += [found] if found else []
    return False


def _is_of_a_word(path: Sequence[str]) -> bool:
    package, *names = path
    of_projections = ".".join(path).startswith(_PROJECTIONS)
    return not FOLLOWING.isdisjoint(names if of_projections else names[:1] if package == FACE else ())


def _declared(ours: Ours, module: str) -> Mapping[str, ast.AST]:
    """Nothing if its source cannot be read: then its text is no part of any digest."""
    try:
        return declared(ours.tree(module))
    except ValueError:
        return {}


def _imported_paths(imported: Imported, known: Mapping[str, ast.AST]) -> Iterator[Sequence[str]]:
    """What it uses that its module, which declares `known`, imports, such as `bank.rules.GUESSED`."""
    module, name = imported
    start = known.keys() if not name else {name} & known.keys()
    for each, node in reached(start, known).items():
        if isinstance(node, ast.Import | ast.ImportFrom):
            if each in start:
                yield _bound(node, module)[each]
            continue
        inside = [_bound(part, module) for part in ast.walk(node) if isinstance(part, ast.Import | ast.ImportFrom)]
        bound = {key: path for names in inside for key, path in names.items()}
        for first, *rest in dotted(node):
            outside = known.get(first)
            if first not in bound and isinstance(outside, ast.Import | ast.ImportFrom):
                bound[first] = _bound(outside, module)[first]
            if first in bound:
                yield [*bound[first], *rest]


def _bound(node: ast.Import | ast.ImportFrom, within: str) -> dict[str, list[str]]:
    """By the names that an import declares, the full names of what they are."""
    if isinstance(node, ast.ImportFrom):
        module = full_name(node, within).split(".")
        return {each.asname or each.name: [*module, each.name] for each in node.names}
    whole = {each.asname: each.name.split(".") for each in node.names if each.asname}
    return whole | {name: [name] for each in node.names if not each.asname for name in each.name.split(".")[:1]}
