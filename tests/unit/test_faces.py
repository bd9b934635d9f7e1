"""What a user's module imports: `headwater` has every word, and brings no Spark, client or server."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import headwater
import headwater.folds
import headwater.testing
from headwater.projections.table import computations

pytestmark = pytest.mark.programs

ROOT = Path(__file__).parents[2]
HEAVY = (
    "pyspark",
    "confluent_kafka",
    "fastapi",
    "uvicorn",
    "psycopg",
    "elasticsearch",
    "valkey",
    "rocksdict",
    "pyarrow",
    "pytest",
    "hypothesis",
)


def run(script: str) -> str:
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=True)
    return ran.stdout.strip()


@pytest.mark.parametrize("package", [headwater, headwater.testing, headwater.folds])
def test_every_word_is_there_and_others_are_not(package: object) -> None:
    for name in package.__all__:  # type: ignore[attr-defined]
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="no_such_word"):
        package.no_such_word  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("file", ["__init__.py", "testing/__init__.py"])
def test_type_checkers_and_editors_see_what_is_imported_at_run_time(file: str) -> None:
    """They read the imports of a block that never runs; each must be the object that a user gets."""
    tree = ast.parse((ROOT / "headwater" / file).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    face = headwater if file == "__init__.py" else headwater.testing
    shown: dict[str, object] = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        module = __import__(str(node.module), fromlist=["_"])
        shown |= {name.name: getattr(module, name.name) for name in node.names}
    assert list(shown) and shown == {name: getattr(face, name) for name in face.__all__}


@pytest.mark.parametrize("face", [headwater, headwater.testing])
def test_a_shell_completes_words_that_nobody_has_used_yet(face: object) -> None:
    assert set(face.__all__) <= set(dir(face))  # type: ignore[attr-defined]


def test_a_name_that_other_libraries_have_too_is_the_word_of_declarations() -> None:
    assert headwater.field is computations.field


def test_a_part_imports_what_it_needs_and_no_more() -> None:
    """One import after another, the lightest first: no word waits for pydantic, no declaration for Spark or a client,
    and no client for Spark, a store or a server."""
    of_clients = {"confluent_kafka", "rocksdict"}
    steps = (
        ("import headwater, headwater.commands.errors, headwater.projections.errors", {"pydantic", *HEAVY}),
        ("from headwater import *", HEAVY),
        ("from headwater.testing import at, check_any_order, given, recorded, rows_of", HEAVY),
        ("from headwater.folds import *", HEAVY),
        ("from headwater.client import *", set(HEAVY) - of_clients),
    )
    script = "import sys\n" + "".join(
        f"{imports}\nprint([name for name in {sorted(names)!r} if name in sys.modules])\n" for imports, names in steps
    )
    assert dict(zip((imports for imports, _ in steps), run(script).splitlines(), strict=True)) == {
        imports: "[]" for imports, _ in steps
    }


def test_a_program_starts_without_what_only_others_need() -> None:
    """The client of Elasticsearch imports pyarrow, aiohttp and httpx: an API without views there does not need it."""
    unneeded = {"pyspark", "pandas", "elasticsearch", "pyarrow", "httpx", "rich"}
    steps = (
        ("import headwater.commands.__main__", {"psycopg", "typer", "fastapi", *unneeded}),
        ("import headwater.projections.__main__", {"fastapi", *unneeded}),
        ("import headwater.api.app", unneeded),
    )
    script = "import sys\n" + "".join(
        f"{imports}\nprint([name for name in {sorted(names)!r} if name in sys.modules])\n" for imports, names in steps
    )
    assert run(script).splitlines() == ["[]"] * len(steps)


MODULE = """
from headwater import Aggregate, Command, Event, Postgres, Rejected, TableView, add, last
from headwater.client import Outcome, open_blocking_client
from headwater.testing import given, rows_of

reveal_type(Postgres())
reveal_type(Rejected("code", "message"))
reveal_type(last({}))
reveal_type(given)
with open_blocking_client() as client:
    reveal_type(client)
from headwater import no_such_word
"""


def test_mypy_sees_the_words_of_a_users_module(tmp_path: Path) -> None:
    (tmp_path / "users.py").write_text(MODULE)
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "users.py"],
        cwd=tmp_path,
        env=os.environ | {"MYPY_CACHE_DIR": str(ROOT / ".mypy_cache" / "faces")},  # else it checks all of Headwater
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert 'Revealed type is "headwater.projections.stores.declared.Postgres"' in ran.stdout, ran.stdout + ran.stderr
    assert 'Revealed type is "headwater.commands.errors.Rejected"' in ran.stdout
    assert 'Revealed type is "headwater.commands.sending.client.BlockingCommandClient"' in ran.stdout
    assert 'Revealed type is "Any"' not in ran.stdout
    assert [line for line in ran.stdout.splitlines() if "error:" in line] == [
        'users.py:12: error: Module "headwater" has no attribute "no_such_word"  [attr-defined]'
    ]
