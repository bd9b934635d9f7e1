"""`python locked.py EXTRA…`: prints the part of requirements.lock that these extras of Headwater install.

It is for the stages of an image, before anything is installed, so it needs the standard library only. Whatever a
package of the result names as its reason in the lock ("via") is followed, whether or not an extra of that package asked
for it, so the result may have a package too many, and never one too few.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

OWN: Final = "headwater"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EXTRAS: Final = re.compile(r"\[([^\]]*)\]")


def part_of(lock: str, project: Mapping[str, Any], extras: Iterable[str]) -> str:
    """The entries of `lock` that `extras` need, with their hashes, in its order.

    lock: as `uv pip compile` writes it, with the reasons of each entry. project: the table `project` of pyproject.toml.
    Raises KeyError if there is no such extra, or if the lock lacks a package.
    """
    parts = [entry for entry in re.split(r"^(?=[A-Za-z0-9])", lock, flags=re.MULTILINE) if entry]
    entries = [(_normal(entry), entry) for entry in parts]  # a package may have several, each for other Pythons
    needed: dict[str, set[str]] = {}
    for name, entry in entries:
        for reason in re.findall(r"^ +#(?: via)? +([A-Za-z0-9][\w.-]*)", entry, re.MULTILINE):
            needed.setdefault(_normal(reason), set()).add(name)
    locked, wanted, todo = {name for name, _ in entries}, set[str](), [*_direct(project, extras)]
    while todo:
        if (name := todo.pop()) not in wanted:
            if name not in locked:
                raise KeyError(f"{name} is not in the lock; run 'make lock'")
            wanted.add(name)
            todo += needed.get(name, ())
    return "".join(entry for name, entry in entries if name in wanted)


def _direct(project: Mapping[str, Any], extras: Iterable[str]) -> set[str]:
    """What Headwater itself names for these extras: the names of packages."""
    found, seen, todo = set[str](), set[str](), [*project["dependencies"]]
    pending = [*extras]
    while todo or pending:
        while pending:
            if (extra := pending.pop()) not in seen:
                seen.add(extra)
                todo += project["optional-dependencies"][extra]
        while todo:
            requirement = todo.pop()
            if (name := _normal(requirement)) != OWN:
                found.add(name)
            elif named := _EXTRAS.search(requirement):
                pending += [each.strip() for each in named[1].split(",")]
    return found


def _normal(text: str) -> str:
    """The name that a requirement begins with, as packages are compared."""
    name = _NAME.match(text)
    if name is None:
        raise ValueError(f"no package is named in {text[:80]!r}")
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def main(extras: list[str]) -> int:
    """Print it for the files of the current folder; returns the exit code."""
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    print(part_of(Path("requirements.lock").read_text(), project, extras), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
