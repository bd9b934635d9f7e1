"""Each program runs with the libraries of its own extra, and without them says what to install."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import grimp
import pytest
from packaging.requirements import Requirement

from headwater.__main__ import EXTRAS, PARTS

pytestmark = pytest.mark.programs

ROOT = Path(__file__).parents[3]
LATER = {"pymysql", "opentelemetry", "google", "cryptography", "psycopg", "psycopg_pool"}
"""Libraries of yet another extra, which their module names itself when they are missing."""


@functools.cache
def imports() -> grimp.ImportGraph:
    return grimp.build_graph("headwater", exclude_type_checking_imports=True)


def installed_by(name: str, extras: frozenset[str], seen: set[tuple[str, frozenset[str]]]) -> dict[str, Distribution]:
    """The distribution of this name, and all that it needs with these extras."""
    if (name, extras) in seen:
        return {}
    seen.add((name, extras))
    found = {name: distribution(name)}
    for text in found[name].requires or ():
        needed = Requirement(text)
        if any(needed.marker is None or needed.marker.evaluate({"extra": extra}) for extra in extras | {""}):
            try:
                found |= installed_by(needed.name, frozenset(needed.extras), seen)
            except PackageNotFoundError:  # for another platform
                continue
    return found


def environment(folder: Path, extra: str) -> Path:
    """A folder of libraries as `pip install headwater[EXTRA]` would fill it."""
    folder.mkdir()
    (folder / "headwater").symlink_to(ROOT / "headwater")
    for each in installed_by("headwater", frozenset({extra}), set()).values():
        for top in {file.parts[0] for file in each.files or () if file.parts[0] not in {"..", "__pycache__"}}:
            if not (folder / top).exists():
                (folder / top).symlink_to(str(each.locate_file(top)))
    return folder


def run(libraries: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Python with these libraries alone: without those of the environment that the tests run in."""
    alone = {**os.environ, "PYTHONPATH": str(libraries)}
    command = [sys.executable, "-S", *words]
    return subprocess.run(command, env=alone, cwd=libraries, capture_output=True, text=True, timeout=300)


PROGRAMS = {
    "client": ("headwater.client",),
    **{
        extra: tuple(m for m, (e, *_) in EXTRAS.items() if e == extra)
        for extra, *_ in EXTRAS.values()
        if extra != "stack"
    },
}
PROGRAMS["api"] += ("headwater.compose.containers.health",)  # the health check of an image with this extra
"""By extra, what it is for; `stack` is the sum of others."""
IMAGES = {"api", "client"}
"""The extras of what runs without the others: an image, and the programs of users."""


@pytest.mark.parametrize(
    "extra",
    [pytest.param(extra, marks=() if extra in IMAGES else (pytest.mark.complete,)) for extra in PROGRAMS],
)
def test_a_program_imports_only_what_its_extra_installs(tmp_path: Path, extra: str) -> None:
    reached = set(PROGRAMS[extra]).union(*map(imports().find_upstream_modules, PROGRAMS[extra]))
    needed = sorted(each for each in reached if not each.endswith("__main__") or each in PROGRAMS[extra])
    script = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    try: importlib.import_module(name)\n"
        "    except ModuleNotFoundError as error: print(name, error.name)\n"
    )
    ran = run(environment(tmp_path / "libraries", extra), "-c", script, *needed)
    assert ran.returncode == 0, ran.stderr
    assert [line for line in ran.stdout.splitlines() if line.split()[1] not in LATER] == []


def test_a_program_without_its_extra_says_what_to_install(tmp_path: Path) -> None:
    """All of them in one process, since none gets further than that."""
    script = (
        "import sys\n"
        "from headwater.__main__ import EXTRAS, PARTS, main\n"
        "for name in (name for name, part in PARTS.items() if part.module in EXTRAS):\n"
        "    sys.argv[:] = ['headwater', name, '--help']\n"
        "    try: main()\n"
        "    except SystemExit as ended: print(ended.code)\n"
    )
    ran = run(environment(tmp_path / "libraries", "client"), "-c", script)
    assert ran.returncode == 0, ran.stderr
    needing = [name for name, part in PARTS.items() if part.module in EXTRAS]
    assert len(needing) > 8
    for name, line in zip(needing, ran.stdout.splitlines(), strict=True):
        assert line.startswith(f"error: headwater {name} needs "), line
        assert "pip install 'headwater[" in line


def test_all_is_the_sum_of_the_others() -> None:
    every = {Requirement(text).name for text in distribution("headwater").requires or () if "'dev'" not in text}
    assert every <= installed_by("headwater", frozenset({"all"}), set()).keys() | {"headwater"}
