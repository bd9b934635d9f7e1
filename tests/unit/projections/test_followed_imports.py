"""The fingerprint of a view that runs the user's Python in order has the source of all of it."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.projections.errors import ViewDeclarationError
from headwater.projections.stream.fingerprint.imported import Ours
from tests.support.observed import gate_view

VIEW = """
from headwater import in_order
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
        (package / name).parent.mkdir(exist_ok=True)
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


@pytest.mark.parametrize("query", ["by_gate(passed)", "TEXT", "SAME"])
def test_other_words_that_the_line_imports_do_not_count(tmp_path: Path, query: str) -> None:
    view = "from .steps import compare\nfrom headwater import {}\n"
    view += "def by_gate(passed):\n    in_order = compare\n    return {}\n"
    before = FILES | {"views.py": view.format("TEXT, in_order, UNCHANGED as SAME", query)}
    after = FILES | {"views.py": view.format("TEXT, TIME, UNCHANGED as SAME, count, in_order", query)}
    assert digest(tmp_path / "before", before) == digest(tmp_path / "after", after)


def test_a_word_counts_by_what_it_is_and_by_its_name(tmp_path: Path) -> None:
    view = "from headwater import {} as KIND\ndef by_gate(passed):\n    return KIND\n"
    one, other = (FILES | {"views.py": view.format(word)} for word in ("TEXT", "TIME"))
    assert digest(tmp_path / "one", one) != digest(tmp_path / "other", other)


@pytest.mark.parametrize("how", ["from headwater import in_order", "import headwater", "import headwater as h"])
def test_words_of_the_face_are_words_for_which_imports_count(tmp_path: Path, how: str) -> None:
    word = {"import headwater": "headwater.in_order", "import headwater as h": "h.in_order"}.get(how, "in_order")
    view = f"{how}\nfrom .steps import compare\ndef by_gate(passed):\n    return {word}(passed, step=compare)\n"
    files = FILES | {"views.py": view}
    assert digest(tmp_path / "before", files) != digest(tmp_path / "after", files | {"limits.py": "LIMIT = 4\n"})


def test_what_a_module_of_a_shipped_sample_imports_from_the_face_is_not_its_own() -> None:
    """It is in the package `headwater`, too."""
    query = type("Query", (), {"__module__": "headwater.samples.gates"})
    (face,) = ast.parse("import headwater").body
    assert list(Ours(query).imports([face], query.__module__)) == []
    (other,) = ast.parse("from headwater.testing import given").body
    assert list(Ours(query).imports([other], query.__module__)) == []


RULES = """
from headwater import in_order, occurs, pattern
from tests.support.observed import Closed, Passed
from .limits import LIMIT
from .steps import compare

GUESSED = pattern(occurs(Passed, times=LIMIT), Closed, within="10m")

def compared(passed):
    return in_order(passed, key="gate", step=compare, columns={}, forget_after="1d")
"""
PATTERNS = {
    "from .rules import GUESSED": "GUESSED.matches(passed)",
    "from mill import rules": "rules.GUESSED.matches(passed)",
    "import mill.rules": "mill.rules.GUESSED.matches(passed)",
    "from .more import guessed_again": "guessed_again.matches(passed)",
}
STEPPING = {
    "from mill.rules import compared": "compared(passed)",
    "from .more import compared_again as c": "c(passed)",
}


@pytest.mark.parametrize(
    ("ways", "file", "old", "new", "same"),
    [
        (PATTERNS, "rules.py", 'within="10m"', 'within="11m"', False),
        (PATTERNS, "limits.py", "3", "4", False),
        (PATTERNS, "limits.py", "\n", "\nOTHER = 5\n", True),
        (STEPPING, "rules.py", 'key="gate"', 'key="weight"', False),
        (STEPPING, "steps.py", '"weight": LIMIT', '"weight": LIMIT + 1', False),
        (STEPPING, "limits.py", "3", "4", False),
        (STEPPING, "rules.py", 'within="10m"', 'within="11m"', True),
    ],
)
def test_imported_patterns_and_wrapped_steps_count(
    tmp_path: Path, ways: dict[str, str], file: str, old: str, new: str, same: bool
) -> None:
    """The view's own module has no word for which imports count; a module that it imports has."""
    more = "from .rules import GUESSED as guessed_again\nfrom .rules import compared as compared_again\n"
    for number, (how, used) in enumerate(ways.items()):
        view = f"{how}\ndef by_gate(passed):\n    return {used}\n"
        files = FILES | {"views.py": view, "rules.py": RULES, "more.py": more}
        changed = files | {file: files[file].replace(old, new, 1)}
        assert changed != files
        folders = tmp_path / f"{number}-before", tmp_path / f"{number}-after"
        assert (digest(folders[0], files) == digest(folders[1], changed)) is same, how


def test_a_step_that_cannot_be_found_is_refused(tmp_path: Path) -> None:
    files = FILES | {"views.py": VIEW.format(how="from .steps import made", step="made")}
    files["steps.py"] += "\nglobals()['made'] = compare\n"
    with pytest.raises(ViewDeclarationError, match=r'"made" of module "mill\.steps", whose text cannot be found'):
        digest(tmp_path, files)


@pytest.mark.parametrize(
    ("how", "used"),
    [
        ("from .rules import LIMIT", "LIMIT"),
        ("from .rules import GUESSED, LIMIT", "LIMIT"),
        ("from . import rules", "rules.LIMIT"),
        ("import mill.rules", "mill.rules.LIMIT"),
        ("from mill import rules as r", "[r.LIMIT]"),
    ],
)
def test_words_of_a_module_do_not_count_if_the_query_uses_something_else_of_it(
    tmp_path: Path, how: str, used: str
) -> None:
    view = f"{how}\ndef by_gate(passed):\n    return {used}\n"
    files = FILES | {"views.py": view, "rules.py": RULES}
    assert digest(tmp_path / "before", files) == digest(tmp_path / "after", files | {"limits.py": "LIMIT = 4\n"})


def test_what_cannot_be_found_is_no_problem_of_other_queries(tmp_path: Path) -> None:
    """Their imports do not count, so nothing of these must be readable."""
    view = "from .steps import made, compare\nfrom .missing import no\ndef by_gate(passed):\n    return made, no\n"
    files = FILES | {"views.py": view, "missing.py": "no = 1\n"}
    files["steps.py"] += "\nglobals()['made'] = compare\n"
    assert digest(tmp_path / "before", files) == digest(tmp_path / "after", files | {"limits.py": "LIMIT = 4\n"})


def test_declaring_a_view_imports_nothing(tmp_path: Path) -> None:
    """What a query imports when it runs may need Spark."""
    view = "def by_gate(passed):\n    from .heavy.steps import made\n    return made(passed)\n"
    heavy = {"heavy/__init__.py": "raise RuntimeError('imported')\n", "heavy/steps.py": RULES.replace(" .", " ..")}
    heavy["heavy/steps.py"] += "def made(passed):\n    return compared(passed)\n"
    found = {
        digest(tmp_path / limit, FILES | {"views.py": view, "limits.py": f"LIMIT = {limit}\n"} | heavy)
        for limit in ("3", "4")
    }
    assert len(found) == 2


@pytest.mark.parametrize("is_wrapped", [False, True])
def test_a_module_beside_that_of_the_view_counts(tmp_path: Path, *, is_wrapped: bool) -> None:
    views = VIEW.format(how="from mill_steps import compare", step="compare")
    wrapped = "from mill_steps import compared\ndef by_gate(passed):\n    return compared(passed)\n"
    compared = views.replace("from mill_steps import compare", "").replace("by_gate", "compared")
    found = set[str]()
    for number, limit in enumerate((3, 3, 4)):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "mill_views.py").write_text(wrapped if is_wrapped else views)
        (folder / "mill_steps.py").write_text(f"def compare(state, row):\n    return {limit}, []\n{compared}")
        sys.path.insert(0, str(folder))
        try:
            importlib.invalidate_caches()
            found.add(gate_view(query=importlib.import_module("mill_views").by_gate).query_digest)
        finally:
            sys.path.remove(str(folder))
            sys.modules.pop("mill_views", None)
            sys.modules.pop("mill_steps", None)
    assert len(found) == 2
