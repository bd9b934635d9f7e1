"""The wheel has the test kit, and a package that has nothing else of Headwater runs its tests with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.acceptance.conftest import ROOT, install

pytestmark = pytest.mark.xdist_group("a wheel")

SHOP = Path(__file__).parent / "own_package"
TESTS = """
from headwater.commands import testing
from headwater.testing import contracts_of, given
from headwater.testing import contracts_of_views, rows_of
from shop.domain import AddProduct, ProductAdded, basket
from shop.views import product_demand

TestDomain = contracts_of("shop.domain")
TestViews = contracts_of_views("shop.views")

ADDED = ProductAdded(basket_id="b", product="tea", pieces=2, gift=False)


def test_a_product_is_added():
    given(basket).when(AddProduct(basket_id="b", product="tea", pieces=2)).then(ADDED)


def test_it_is_in_demand():
    assert rows_of(product_demand, ADDED) == {"tea": {"product": "tea", "pieces": 2, "put_back": 0}}


def test_the_kit_is_that_of_the_wheel():
    assert "SITE" in testing.__file__
"""
FEW = """
from hypothesis import settings

settings.register_profile("few", max_examples=5, database=None)
settings.load_profile("few")
"""


def test_the_wheel_has_the_kit_and_no_test_of_headwaters_own(wheel: Path) -> None:
    packed = set(ZipFile(wheel).namelist())
    for package in ("commands", "projections"):
        there = {str(file.relative_to(ROOT)) for file in (ROOT / "headwater" / package / "testing").glob("*.py")}
        assert len(there) > 3 and there <= packed
    assert {name.partition("/")[0] for name in packed if ".dist-info/" not in name} == {"headwater"}


FOLDERS = ("api", "commands", "compose", "eventlog", "projections", "replay")
"""Of a checkout; installed, they are in `headwater`."""
NOT_PACKED = ("compose/chart/", "compose/publishing/")
"""For Helm, and for those who publish Headwater: from a checkout only."""


def test_the_wheel_has_each_file_of_the_packages_and_nothing_else(wheel: Path) -> None:
    """It is built from the sdist, if uv is there: so the sdist has them, too."""
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "headwater", *FOLDERS]
    listed = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    files = [path for path in listed if not path.startswith(NOT_PACKED) and (ROOT / path).is_file()]
    expected = {path if path.startswith("headwater/") else f"headwater/{path}" for path in files}
    packed = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == expected


def test_the_wheel_has_what_the_pages_of_the_console_need(wheel: Path) -> None:
    console = ROOT / "headwater" / "api" / "console"
    there = {str(file.relative_to(ROOT)) for folder in ("templates", "static") for file in (console / folder).iterdir()}
    assert len(there) > 15 and there <= set(ZipFile(wheel).namelist())


@pytest.mark.complete
def test_a_package_runs_its_tests_with_it(wheel: Path, tmp_path: Path) -> None:
    ZipFile(wheel).extractall(tmp_path / "SITE")
    (tmp_path / "test_shop.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(FEW)
    environment = {name: value for name, value in os.environ.items() if name != "HEADWATER_MODULES"}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "test_shop.py"],
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": f"{tmp_path / 'SITE'}:{SHOP}"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "passed" in ran.stdout


@pytest.fixture
def programs(wheel: Path, tmp_path: Path) -> Path:
    """The programs of a fresh environment in which `pip install headwater[testing]` has put the wheel and libraries."""
    folder = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=600)
    install(wheel, "testing", folder)
    return folder / "bin"


@pytest.mark.complete
def test_it_is_enough_for_a_new_project_and_its_tests(programs: Path, tmp_path: Path) -> None:
    """Without a checkout: nothing of this one is on the path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HEADWATER_", "PYTHON"))}

    def run(folder: Path, *words: str) -> str:
        ran = subprocess.run(words, cwd=folder, env=kept, capture_output=True, text=True, timeout=600)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    run(tmp_path, str(programs / "headwater"), "new", "bank", "--container")
    assert (tmp_path / "bank" / "Dockerfile").exists()
    python = str(programs / "python")
    for name in FOLDERS:  # the user's own
        (tmp_path / "bank" / name).mkdir()
        (tmp_path / "bank" / name / "__init__.py").write_text("OWN = True\n")
    with (tmp_path / "bank" / "tests" / "test_bank.py").open("a") as file:
        file.writelines(
            f"\n\ndef test_{name}():\n    import {name}, headwater.{name}\n    assert {name}.OWN\n" for name in FOLDERS
        )
    assert f"{3 + len(FOLDERS)} passed, 2 deselected" in run(
        tmp_path / "bank", python, "-m", "pytest", "-p", "no:cacheprovider"
    )
    where = "import headwater, headwater.compose.testing; print(headwater.__file__, headwater.compose.testing.__file__)"
    assert str(ROOT) not in run(tmp_path, python, "-c", where)
    said = subprocess.run([python, "-m", "headwater", "run"], cwd=tmp_path / "bank", env=kept, capture_output=True)
    assert b"pip install 'headwater[stack]'" in said.stderr, "an extra that is missing is named"
