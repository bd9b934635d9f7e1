"""The fingerprint of a view that runs the user's Python in order has the source of all of it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from projections.errors import ViewDeclarationError
from tests.observed import gate_view

VIEW = """
from projections import in_order
{how}

def by_gate(passed):
    return in_order(passed, key="gate", step={step}, columns={{}}, forget_after="1d")
"""
STEPS = '''
from .limits import LIMIT
from math import pi

def compare(state, row):
    """Doc."""
    return state, [{"weight": LIMIT}]

def unused(state, row):
    return None, []
'''
FILES = {"__init__.py": "", "steps.py": STEPS, "limits.py": "LIMIT = 3\n"}
WAYS = {
    "from .steps import compare": "compare",
    "from mill.steps import compare as c": "c",
    "from mill import steps": "steps.compare",
    "import mill.steps as s": "s.compare",
    "from . import steps": "steps.compare",
}


def digest(folder: Path, files: dict[str, str]) -> str:
    package = folder / "mill"
    package.mkdir(parents=True)
    for name, text in files.items():
        (package / name).write_text(text)
    sys.path.insert(0, str(folder))
    try:
        importlib.invalidate_caches()
        return gate_view(query=importlib.import_module("mill.views").by_gate).query_digest
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.partition(".")[0] == "mill"]:
            del sys.modules[name]


@pytest.fixture(params=WAYS)
def view(request: pytest.FixtureRequest) -> Iterator[str]:
    yield VIEW.format(how=request.param, step=WAYS[request.param])


@pytest.mark.parametrize(
    ("file", "old", "new", "same"),
    [
        ("steps.py", '"weight": LIMIT', '"weight": LIMIT + 1', False),
        ("limits.py", "3", "4", False),
        ("steps.py", '"""Doc."""', '"""Other."""', True),
        ("limits.py", "\n", "\nOTHER = 5\n", True),
    ],
)
def test_what_an_imported_step_does_counts(
    tmp_path: Path, view: str, file: str, old: str, new: str, same: bool
) -> None:
    files = FILES | {"views.py": view}
    changed = files | {file: files[file].replace(old, new, 1)}
    assert changed != files
    assert (digest(tmp_path / "before", files) == digest(tmp_path / "after", changed)) is same


def test_other_queries_have_the_digests_that_are_stored(tmp_path: Path) -> None:
    """Imports did not count when these were stored, and words of other libraries change nothing."""
    view = (
        "import re\nfrom .steps import compare\ndef by_gate(passed):\n    return compare(re.compile('').pattern, 1)\n"
    )
    changed = FILES | {"views.py": view, "limits.py": "LIMIT = 4\n"}
    assert digest(tmp_path / "before", FILES | {"views.py": view}) == digest(tmp_path / "after", changed)


def test_a_step_that_cannot_be_found_is_refused(tmp_path: Path) -> None:
    files = FILES | {"views.py": VIEW.format(how="from .steps import made", step="made")}
    files["steps.py"] += "\nglobals()['made'] = compare\n"
    with pytest.raises(ViewDeclarationError, match=r'"made" of module "mill\.steps", whose text cannot be found'):
        digest(tmp_path, files)


def test_a_module_beside_that_of_the_view_counts(tmp_path: Path) -> None:
    found = set[str]()
    for number, limit in enumerate((3, 3, 4)):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "mill_views.py").write_text(VIEW.format(how="from mill_steps import compare", step="compare"))
        (folder / "mill_steps.py").write_text(f"def compare(state, row):\n    return {limit}, []\n")
        sys.path.insert(0, str(folder))
        try:
            importlib.invalidate_caches()
            found.add(gate_view(query=importlib.import_module("mill_views").by_gate).query_digest)
        finally:
            sys.path.remove(str(folder))
            sys.modules.pop("mill_views", None)
            sys.modules.pop("mill_steps", None)
    assert len(found) == 2
