"""The wheel has the test kit, and a package that has nothing else of Headwater runs its tests with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
SHOP = Path(__file__).parent / "own_package"
TESTS = """
from commands import testing
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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    words = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(target), str(ROOT)]
    subprocess.run(words, check=True, timeout=600)
    (built,) = target.glob("headwater-*.whl")
    return built


def test_the_wheel_has_the_kit_and_no_test_of_headwaters_own(wheel: Path) -> None:
    packed = set(ZipFile(wheel).namelist())
    for package in ("commands", "projections"):
        there = {str(file.relative_to(ROOT)) for file in (ROOT / package / "testing").glob("*.py")}
        assert len(there) > 4 and there <= packed
    assert not [name for name in packed if name.startswith("tests/")]


def test_the_wheel_has_what_the_pages_of_the_console_need(wheel: Path) -> None:
    console = ROOT / "api" / "console"
    there = {str(file.relative_to(ROOT)) for folder in ("templates", "static") for file in (console / folder).iterdir()}
    assert len(there) > 15 and there <= set(ZipFile(wheel).namelist())


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
