"""Pages of reference from the code: what the modules export that users import from, with its docstrings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import griffe

from headwater.compose.publishing.site import FACES

GROUPS: Final[Mapping[str, str]] = {
    "headwater.commands": "Aggregates, observations and processes",
    "headwater.projections": "Views, expressions and conditions",
    "headwater.projections.table.folds": "Folds",
    "headwater.projections.stores": "Stores",
    "headwater.projections.stream": "Stream views",
    "headwater.commands.declaring.history": "Upcasters between the versions of an event",
    "headwater.eventlog.capturing": "Captured databases",
}
"""The headings of the page of `headwater`, by the package that defines a name; the narrowest one counts."""
LINE: Final = 100
"""Characters of a signature that is shown in one line."""
_ARGUMENT: Final = re.compile(r"(?<!\n)\n(?=[a-z]\w*(?:, [a-z]\w*)*: )")


def pages(root: Path) -> Iterator[tuple[str, str]]:
    """The (file name, Markdown) of each page. root: the checkout. Raises LookupError if a name cannot be found."""
    package = griffe.load("headwater", search_paths=[root], resolve_aliases=True, resolve_external=True)
    for name in FACES:
        module = package if name == "headwater" else package[name.partition(".")[2]]
        parts = [f"# `{name}`", _docstring(module), *(_groups(module) if name == "headwater" else _entries(module))]
        yield f"{name}.md", "\n\n".join(parts) + "\n"


def _groups(module: griffe.Module) -> Iterator[str]:
    groups: dict[str, list[str]] = {package: [] for package in GROUPS}
    for name in map(str, module.exports or ()):
        defined = target_of(module, name).canonical_path
        package = max((group for group in GROUPS if defined.startswith(f"{group}.")), key=len, default="")
        if not package:
            raise LookupError(f'"{name}" has no heading in the reference: add the package of {defined} to GROUPS')
        groups[package].append(name)
    for package, names in groups.items():
        yield f"## {GROUPS[package]}"
        yield from (entry(name, target_of(module, name), with_methods=False) for name in sorted(names, key=str.lower))


def _entries(module: griffe.Module) -> Iterator[str]:
    for name in sorted(map(str, module.exports or ()), key=str.lower):
        yield entry(name, target_of(module, name))


def target_of(module: griffe.Module, name: str) -> griffe.Object:
    """What a module exports under this name, where it is defined; raises LookupError if it is not found."""
    try:
        exported = module[name]
        target = exported.final_target if exported.is_alias else exported
        # a function in a module of its own name: the package that exports it has both
        return target_of(target, name) if target.is_module else target
    except (KeyError, griffe.AliasResolutionError, griffe.CyclicAliasError) as error:
        raise LookupError(f'"{name}", which {module.path} exports, is not found in the code') from error


def entry(name: str, exported: griffe.Object, *, with_methods: bool = True) -> str:
    """A heading, the signature and the docstring. with_methods: also those of a class, whose users call them."""
    parts = [f"### {name}", f"```python\n{signature(name, exported)}\n```", _docstring(exported)]
    for member, doc in exported.members.items() if exported.is_class and with_methods else ():
        if not member.startswith("_") and doc.docstring and (doc.is_function or "property" in doc.labels):
            parts += [f"#### {name}.{member}", f"```python\n{signature(member, doc)}\n```", _docstring(doc)]
    return "\n\n".join(part for part in parts if part)


def signature(name: str, exported: griffe.Object) -> str:
    """How it is called, or the type of a constant; in one line if it fits."""
    if not (exported.is_class or exported.is_function):
        annotation = str(getattr(exported, "annotation", None) or "Final")
        return name if annotation == "Final" else f"{name}: {annotation}"
    words = list(_parameters(exported))
    returned = f" -> {exported.returns}" if exported.is_function and exported.returns else ""
    before = f"class {name}" if exported.is_class else f"{'async ' if 'async' in exported.labels else ''}def {name}"
    if exported.is_class and not words:
        return before
    line = f"{before}({', '.join(words)}){returned}"
    return line if len(line) <= LINE else f"{before}(\n    " + ",\n    ".join(words) + f",\n){returned}"


def _parameters(exported: griffe.Object) -> Iterator[str]:
    """As written in the code, without `self` and those that are private."""
    starred = False
    for parameter in exported.parameters:
        kind, name = parameter.kind, parameter.name
        if name in {"self", "cls"} or name.startswith("_"):
            continue
        if kind is griffe.ParameterKind.keyword_only and not starred:
            starred = True
            yield "*"
        stars = {griffe.ParameterKind.var_positional: "*", griffe.ParameterKind.var_keyword: "**"}.get(kind, "")
        starred = starred or stars == "*"
        annotated = f": {parameter.annotation}" if parameter.annotation else ""
        default = "" if stars or parameter.default is None else f"{' = ' if annotated else '='}{parameter.default}"
        yield f"{stars}{name}{annotated}{default}"


def _docstring(exported: griffe.Object) -> str:
    """As Markdown, in which the description of each argument begins a line."""
    return _ARGUMENT.sub("  \n", exported.docstring.value.strip()) if exported.docstring else ""
