"""`python -m tests.gauge`: the size of the product and of its tests, in statements, files and functions per package.

Statements are nodes of `ast.stmt` but for docstrings (of fields, too), so neither formatting nor comments change them.
A private function that is used once has a name that begins with `_`, is defined once, and stands in one other place.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PRODUCT: Final = ("api", "commands", "compose", "eventlog", "headwater", "projections", "replay")
TESTS: Final = "tests"
COLUMNS: Final = ("statements", "files", "functions", "of one statement", "private, used once")


@dataclass(frozen=True)
class Size:
    """The size of a package, or of several."""

    statements: int = 0
    files: int = 0
    functions: int = 0
    one_statement: int = 0
    used_once: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(*(one + another for one, another in zip(astuple(self), astuple(other), strict=True)))


def measure(root: Path, packages: Iterable[str]) -> dict[str, Size]:
    """The size of each package below `root`; a name may be used in any of them."""
    modules = {
        package: [list(ast.walk(ast.parse(file.read_text("utf-8")))) for file in sorted((root / package).rglob("*.py"))]
        for package in packages
    }
    uses, definitions = Counter[str](), Counter[str]()
    for node in (node for files in modules.values() for nodes in files for node in nodes):
        uses.update(_used_names(node))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            definitions[node.name] += 1
    once = {
        name for name, number in definitions.items()
        if name.startswith("_") and not name.startswith("__") and number == uses[name] == 1
    }  # fmt: skip
    return {package: sum((_size_of(nodes, once) for nodes in files), Size()) for package, files in modules.items()}


def _used_names(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
            yield name


def _size_of(nodes: Sequence[ast.AST], used_once: set[str]) -> Size:
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return Size(
        statements=sum(isinstance(node, ast.stmt) and not _is_docstring(node) for node in nodes),
        files=1,
        functions=len(functions),
        one_statement=sum(len(function.body) - _is_docstring(function.body[0]) == 1 for function in functions),
        used_once=sum(function.name in used_once for function in functions),
    )


def _is_docstring(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def main(root: Path = ROOT) -> None:
    """Print a line per package, their sum, and a line for the tests."""
    product = measure(root, PRODUCT)
    rows = {**product, "product": sum(product.values(), Size()), TESTS: measure(root, [TESTS])[TESTS]}
    print(f"{'':<14}" + "".join(f"   {column}" for column in COLUMNS))
    for title, size in rows.items():
        print(
            f"{title:<14}" + "".join(f"{n:>{len(name) + 3},}" for n, name in zip(astuple(size), COLUMNS, strict=True))
        )


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
