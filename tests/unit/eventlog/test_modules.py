"""Finding declarations in packages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventlog.errors import EventLogError, ModuleBroken
from eventlog.modules import find


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An importable package `shop_x` with a module and a sub-package."""
    root = tmp_path / "shop_x"
    (root / "deep").mkdir(parents=True)
    (root / "__init__.py").write_text("")
    (root / "__main__.py").write_text("raise SystemExit(1)")
    (root / "one.py").write_text(
        "first = Path('1')\nsecond = Path('2')\n".replace("Path", "__import__('pathlib').Path")
    )
    (root / "deep" / "__init__.py").write_text("from shop_x.one import first as again\n")
    (root / "deep" / "two.py").write_text("third = __import__('pathlib').Path('3')\nother = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield root
    for name in [name for name in sys.modules if name.split(".")[0] == "shop_x"]:
        del sys.modules[name]


def test_every_module_below_a_package_is_searched_and_each_object_listed_once(package: Path) -> None:
    found = [(module, str(path)) for module, path in find(["shop_x"], Path)]
    assert sorted(found, key=lambda pair: pair[1]) == [
        ("shop_x.deep", "1"),
        ("shop_x.one", "2"),
        ("shop_x.deep.two", "3"),
    ]


def test_a_single_module_may_be_named(package: Path) -> None:
    assert [str(path) for _, path in find(["shop_x.deep.two"], Path)] == ["3"]


def test_a_package_that_is_not_there_is_named_with_the_variable() -> None:
    with pytest.raises(ModuleBroken, match=r"shop_that_is_not_there.*HEADWATER_MODULES") as broken:
        find(["shop_that_is_not_there"], Path)
    assert isinstance(broken.value.__cause__, ModuleNotFoundError)
    assert isinstance(broken.value, EventLogError)


def test_a_module_that_fails_is_named_with_its_error(package: Path) -> None:
    (package / "deep" / "bad.py").write_text("1 / 0")
    with pytest.raises(ModuleBroken, match=r"shop_x\.deep\.bad.*ZeroDivisionError"):
        find(["shop_x"], Path)
