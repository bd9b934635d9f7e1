"""Which modules a deployment is made of, and finding declarations in them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.eventlog.declaring import WrongDeclaration
from headwater.eventlog.errors import EventLogError, ModuleBroken, SettingError, UnknownModule
from headwater.eventlog.programs.modules import domain_of, find, full_name, read_modules


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


@pytest.mark.parametrize("name", ["shop_that_is_not_there", "shop_x.deep.nowhere", "shop_x.one.first", "order"])
def test_a_name_of_nothing_is_told_with_the_variable_and_the_shipped_domains(package: Path, name: str) -> None:
    said = (
        re.escape(f'there is no module "{name}"')
        + r".*HEADWATER_MODULES.*\(buses, checkouts, listings, orders, payments, sales, saved_searches, sensors, shop, "
        + r"shop_floor, ski_lifts, web\)"
    )
    with pytest.raises(UnknownModule, match=said) as unknown:
        find([name], Path)
    assert isinstance(unknown.value.__cause__, ModuleNotFoundError)
    assert isinstance(unknown.value, EventLogError)


class Unsayable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("never")


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("x = 1\n\n1 / 0\n", 3, "ZeroDivisionError: division by zero"),
        ("def f():\n    return {}['a']\n\nf()\n", 2, "KeyError: 'a'"),
        ("x = 1\nx = (\n", 2, "SyntaxError: '(' was never closed"),
        ("x = 1\n  y = 2\n", 2, "IndentationError: unexpected indent"),
        ("import ast\nast.literal_eval('1 +')\n", 2, "SyntaxError: invalid syntax"),
        ("import shop_y\n", 1, "ModuleNotFoundError: No module named 'shop_y'"),
        ("from shop_x.one import third\n", 1, "ImportError: cannot import name 'third' from 'shop_x.one'"),
        ("raise SystemExit(3)\n", 1, "SystemExit: 3"),
        ("import json\njson.loads('[1')\n", 2, "JSONDecodeError: Expecting"),
        ("raise ValueError('one\\ntwo ' + 'x' * 5_000_000)\n", 1, "ValueError: one two xxx"),
        (
            "from tests.unit.eventlog.test_modules import Unsayable\nraise Unsayable\n",
            2,
            "Unsayable: its message cannot be read (RuntimeError)",
        ),
    ],
)
def test_a_module_that_fails_is_named_with_the_line_that_failed(package: Path, text: str, line: int, said: str) -> None:
    bad = package / "deep" / "bad.py"
    bad.write_text(text)
    with pytest.raises(ModuleBroken) as broken:
        find(["shop_x"], Path)
    message = str(broken.value)
    assert message.startswith(f"{bad}:{line}: {said}")
    assert message.endswith(
        '; module "shop_x.deep.bad" cannot be imported: correct this line, or the name in HEADWATER_MODULES'
    )
    assert "\n" not in message
    assert len(message) < 2_000


def test_the_line_that_failed_is_that_of_the_module_that_another_one_imports(package: Path) -> None:
    (package / "bad.py").write_text("\n\n1 / 0\n")
    (package / "deep" / "__init__.py").write_text("import shop_x.bad\n")
    with pytest.raises(ModuleBroken, match=re.escape(f"{package / 'bad.py'}:3: ZeroDivisionError")):
        find(["shop_x.deep"], Path)


def test_a_package_that_is_installed_like_a_library_is_named_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "lib" / "python3.11" / "site-packages"
    (folder / "shop_lib").mkdir(parents=True)
    (folder / "shop_lib" / "__init__.py").write_text("")
    (folder / "shop_lib" / "views.py").write_text("import json\n\njson.loads('[1')\n")
    monkeypatch.syspath_prepend(folder)
    with pytest.raises(ModuleBroken, match=re.escape(f"{folder}/shop_lib/views.py:3: JSONDecodeError")):
        find(["shop_lib.views"], Path)
    (folder / "shop_lib" / "good.py").write_text(
        "from headwater.eventlog.places import called_from\n\nplace = called_from()\n"
    )
    (place,) = [value for _, value in find(["shop_lib.good"], str) if ":" in value and value.endswith("3")]
    assert place == f"{folder}/shop_lib/good.py:3"
    for name in [name for name in sys.modules if name.split(".")[0] == "shop_lib"]:
        del sys.modules[name]


def test_a_wrong_declaration_is_one_sentence_with_its_line(package: Path) -> None:
    bad = package / "bad.py"
    bad.write_text("from headwater import Event\n\n\nclass Placed(Event, type='Placed'):\n    order_id: str\n")
    with pytest.raises(ModuleBroken) as broken:
        find(["shop_x"], Path)
    assert str(broken.value) == f"{bad}:4: {broken.value.__cause__}"
    assert isinstance(broken.value.__cause__, WrongDeclaration)


def test_a_sample_has_a_short_name() -> None:
    sample = "headwater.samples.orders"
    for name in ("orders", sample):
        assert full_name(name) == sample
    for name in (f"{sample}.domain", "bank", "bank.orders"):
        assert full_name(name) == name


@pytest.mark.programs
def test_samples_need_no_client_of_a_server() -> None:
    script = (
        "import sys; from headwater.eventlog.programs.modules import find, shipped_domains\n"
        "find(shipped_domains(), object)\n"
        "heavy = 'headwater.compose', 'pandas', 'psycopg', 'httpx', 'pyspark'\n"
        "print([each for each in heavy if each in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout == "[]\n"


def test_what_a_deployment_names_is_what_it_is_made_of() -> None:
    assert read_modules("orders") == ("orders",)
    assert read_modules(" shop.domain, orders ,, shop.domain") == ("shop.domain", "orders")


def test_modules_of_the_user_s_may_contain_the_name_of_a_shipped_domain(package: Path) -> None:
    (package / "orders.py").write_text("import pathlib\nmine = pathlib.Path('mine')")
    (name,) = read_modules("shop_x.orders")
    assert [str(path) for _, path in find([name], Path)] == ["mine"]


@pytest.mark.parametrize("file", ["orders.py", "orders/__init__.py", "orders/domain.py"])
def test_a_copy_of_a_sample_is_loaded_instead_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert full_name("orders") == "orders"
    assert full_name("headwater.samples.orders") == "headwater.samples.orders"


@pytest.mark.parametrize("nothing", ["", " , "])
def test_a_deployment_that_names_no_module_is_refused_and_is_told_what_to_set(nothing: str) -> None:
    said = r'"HEADWATER_MODULES" is .*: set it to your modules, such as bank\.domain,bank\.views, or .*\(buses, .*web\)'
    with pytest.raises(SettingError, match=said):
        read_modules(nothing)


def test_a_folder_without_modules_is_no_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "january.csv").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert full_name("orders") == "headwater.samples.orders"


def test_the_domain_of_a_module() -> None:
    assert domain_of("headwater.samples.orders.domain.stock") == domain_of("headwater.samples.orders") == "orders"
    assert domain_of("headwater.samples.listings.views") == "listings"
    for other in (
        "headwater.projections.views",
        "headwater.samples.orders_of_mine",
        "headwater.samples",
        "orders",
    ):
        assert domain_of(other) is None
