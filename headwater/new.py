"""`headwater new NAME`: writes a small project that runs at once."""

from __future__ import annotations

import keyword
import re
import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from importlib.metadata import packages_distributions, version
from importlib.resources import files
from pathlib import Path
from typing import Final

from headwater.compose.ports import free_port, is_free
from headwater.compose.settings import Ports
from headwater.eventlog.programs.modules import PACKAGE, shipped_domains

TEMPLATES: Final = {
    "README.md": "README.md.txt",
    ".gitignore": "gitignore.txt",
    "Makefile": "Makefile.txt",
    "pyproject.toml": "pyproject.toml.txt",
    "{name}/__init__.py": None,
    "{name}/domain.py": "domain.py.txt",
    "{name}/views.py": "views.py.txt",
    "conftest.py": "conftest.py.txt",
    "tests/test_{name}.py": "test.py.txt",
    "tests/test_{name}_running.py": "test_running.py.txt",
}
"""By path in the project, the template in `headwater/project`, where NAME stands for the name; None: an empty file.
A template in a folder of that name comes first: `bank` is the project of the tutorial, with accounts."""
CONTAINER: Final = {"Dockerfile": "Dockerfile.txt", ".dockerignore": "dockerignore.txt"}
"""Likewise with `--container`; VERSION stands for that of Headwater, whose image the project's is made of."""
RESERVED: Final = frozenset({"account", "run", "task", "test", "tests"})
API: Final = "HEADWATER_API_PORT"
PORTS: Final = {API: 18080, **{Ports.variable(name): port for name, port in Ports().model_dump().items()}}
"""Those of `headwater run`, by the variables that choose others."""


def main(words: Sequence[str] | None = None) -> int:
    """Write the project; returns the exit code. words: the arguments; None: those of the process."""
    parser = ArgumentParser(
        "headwater new", description="Write a small project of your own: an aggregate, a view, and their tests."
    )
    parser.add_argument("name", metavar="NAME", help="of its package and of the new folder, such as bank")
    parser.add_argument("--container", action="store_true", help="also write the Dockerfile of an image of the project")
    given = parser.parse_args(words)
    name = given.name
    folder = Path(name)
    problem = wrong_name(name) or (f'there is "{folder}" already: choose another name' if folder.exists() else "")
    if problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    try:
        write(name, folder, TEMPLATES | (CONTAINER if given.container else {}))
    except OSError as error:
        print(f'error: the folder "{folder}" cannot be written: {error.strerror or error}', file=sys.stderr)
        return 1
    steps = ("make test            # without a server", "make test-running    # on real servers", "make run")
    lines = "\n".join(f"    {step}" for step in (f"cd {folder}", *steps))
    print(f"made {folder}: run\n\n{lines}\n\n{folder / 'README.md'} says what to try")
    return 0


def wrong_name(name: str) -> str:
    """Why a package should not have this name, and what to do; empty if it may."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        return f'"{name}" is no name of a package: use lower-case letters, digits and _, and begin with a letter'
    if keyword.iskeyword(name) or keyword.issoftkeyword(name):
        return f'"{name}" is a keyword of Python: choose another name'
    kinds = {
        "Headwater's own package": {PACKAGE},
        "a shipped sample": shipped_domains(),
        "a module of Python": sys.stdlib_module_names,
        "a name that the project needs itself": RESERVED,
        "an installed package": packages_distributions().keys(),
    }
    kind = next((kind for kind, names in kinds.items() if name in names), "")
    return f'"{name}" is {kind}, and one would hide the other: choose another name' if kind else ""


def write(name: str, folder: Path, templates: Mapping[str, str | None] = TEMPLATES) -> None:
    """Write the files of the project `name` into `folder`, which must not exist; raises OSError.

    Its Makefile chooses another port for each that something on this machine has, such as another project that runs.
    """
    folder.mkdir()
    templates_folder = files("headwater") / "project"
    chosen = {variable: free_port() for variable, port in PORTS.items() if not is_free(port)}
    for path, template in templates.items():
        file = folder / path.format(name=name)
        file.parent.mkdir(exist_ok=True)
        own = templates_folder / name / (template or "")
        text = (own if own.is_file() else templates_folder / template).read_text() if template else ""
        text = text.replace("NAME", name).replace("VERSION", version("headwater"))
        file.write_text(text.replace(str(PORTS[API]), str(chosen.get(API, PORTS[API]))))
    if chosen:
        lines = "".join(f"export {variable} := {port}\n" for variable, port in chosen.items())
        (folder / "Makefile").write_text(lines + (folder / "Makefile").read_text())


if __name__ == "__main__":
    sys.exit(main())
