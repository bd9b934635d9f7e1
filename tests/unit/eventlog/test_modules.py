"""Which modules a deployment is made of, and finding declarations in them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventlog.declaring import WrongDeclaration
from eventlog.errors import AmbiguousModule, EventLogError, ModuleBroken, SettingError, UnknownModule
from eventlog.modules import ROOMS, domain_of, find, read_modules, shipped_domains

ROOM = ROOMS[0]


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
    found = [(module, str(path)) for module, path in find(["shop_x"], Path, ROOM)]
    assert sorted(found, key=lambda pair: pair[1]) == [
        ("shop_x.deep", "1"),
        ("shop_x.one", "2"),
        ("shop_x.deep.two", "3"),
    ]


def test_a_single_module_may_be_named(package: Path) -> None:
    assert [str(path) for _, path in find(["shop_x.deep.two"], Path, ROOM)] == ["3"]


@pytest.mark.parametrize("name", ["shop_that_is_not_there", "shop_x.deep.nowhere", "shop_x.one.first", "order"])
def test_a_name_of_nothing_is_told_with_the_variable_and_the_shipped_domains(package: Path, name: str) -> None:
    said = (
        re.escape(f'there is no module "{name}"')
        + r".*HEADWATER_MODULES.*\(buses, checkouts, listings, orders, payments, sales, saved_searches, sensors, shop, "
        + r"shop_floor, ski_lifts, timelines, web\)"
    )
    with pytest.raises(UnknownModule, match=said) as unknown:
        find([name], Path, ROOM)
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
        find(["shop_x"], Path, ROOM)
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
        find(["shop_x.deep"], Path, ROOM)


def test_a_package_that_is_installed_like_a_library_is_named_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "lib" / "python3.11" / "site-packages"
    (folder / "shop_lib").mkdir(parents=True)
    (folder / "shop_lib" / "__init__.py").write_text("")
    (folder / "shop_lib" / "views.py").write_text("import json\n\njson.loads('[1')\n")
    monkeypatch.syspath_prepend(folder)
    with pytest.raises(ModuleBroken, match=re.escape(f"{folder}/shop_lib/views.py:3: JSONDecodeError")):
        find(["shop_lib.views"], Path, ROOM)
    (folder / "shop_lib" / "good.py").write_text("from eventlog.places import called_from\n\nplace = called_from()\n")
    (place,) = [value for _, value in find(["shop_lib.good"], str, ROOM) if ":" in value and value.endswith("3")]
    assert place == f"{folder}/shop_lib/good.py:3"
    for name in [name for name in sys.modules if name.split(".")[0] == "shop_lib"]:
        del sys.modules[name]


def test_a_wrong_declaration_is_one_sentence_with_its_line(package: Path) -> None:
    bad = package / "bad.py"
    bad.write_text("from commands import Event\n\n\nclass Placed(Event, type='Placed'):\n    order_id: str\n")
    with pytest.raises(ModuleBroken) as broken:
        find(["shop_x"], Path, ROOM)
    assert str(broken.value) == f"{bad}:4: {broken.value.__cause__}"
    assert isinstance(broken.value.__cause__, WrongDeclaration)


def test_a_shipped_domain_is_all_its_packages() -> None:
    assert shipped_domains() == {
        "buses": ("commands.observations.buses", "projections.views.buses"),
        "checkouts": ("commands.observations.checkouts", "projections.views.checkouts"),
        "listings": ("commands.aggregates.listings", "commands.observations.listings", "projections.views.listings"),
        "orders": ("headwater.samples.orders.domain", "commands.processes.orders", "projections.views.orders"),
        "payments": (
            "commands.aggregates.payments",
            "commands.observations.payments",
            "commands.processes.payments",
            "projections.views.payments",
        ),
        "sales": ("headwater.samples.sales.domain", "projections.views.sales"),
        "saved_searches": (
            "commands.aggregates.saved_searches",
            "commands.observations.saved_searches",
            "projections.views.saved_searches",
        ),
        "sensors": ("commands.observations.sensors", "projections.views.sensors"),
        "shop": (
            "eventlog.capturing.shop",
            "headwater.samples.shop.domain",
            "commands.processes.shop",
            "projections.views.shop",
        ),
        "shop_floor": ("commands.observations.shop_floor", "projections.views.shop_floor"),
        "ski_lifts": ("commands.observations.ski_lifts", "projections.views.ski_lifts"),
        "timelines": ("commands.observations.timelines", "projections.views.timelines"),
        "web": ("commands.observations.web", "projections.views.web"),
    }


def test_a_shipped_domain_stands_for_its_package_in_the_room_that_is_searched() -> None:
    def where(room: str) -> set[str]:
        return {module.rpartition(".")[0] for module, _ in find(["orders", "listings", "shop"], type, room)}

    assert {room: where(room) for room in ROOMS} == {
        "eventlog.capturing": {"eventlog.capturing.shop"},
        "commands.aggregates": {f"commands.aggregates.{name}" for name in ("listings", "orders", "shop")},
        "commands.observations": {"commands.observations.listings"},
        "commands.processes": {"commands.processes.orders", "commands.processes.shop"},
        "projections.views": {f"projections.views.{name}" for name in ("listings", "orders", "shop")},
    }


def test_what_a_deployment_names_is_what_it_is_made_of() -> None:
    assert read_modules("orders") == ("orders",)
    assert read_modules(" shop.domain, orders ,, shop.domain") == ("shop.domain", "orders")


def test_modules_of_the_user_s_may_contain_the_name_of_a_shipped_domain(package: Path) -> None:
    (package / "orders.py").write_text("import pathlib\nmine = pathlib.Path('mine')")
    (name,) = read_modules("shop_x.orders")
    assert [str(path) for _, path in find([name], Path, ROOM)] == ["mine"]


@pytest.mark.parametrize("file", ["orders.py", "orders/__init__.py", "orders/domain.py"])
def test_a_name_that_is_a_shipped_domain_and_a_module_of_the_user_s_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    said = re.escape(f'"{tmp_path}/orders') + r'.*"orders\.domain".*commands\.aggregates\.orders'
    with pytest.raises(AmbiguousModule, match=said):
        read_modules("listings,orders")
    assert read_modules("listings,orders.domain") == ("listings", "orders.domain")


@pytest.mark.parametrize("nothing", ["", " , "])
def test_a_deployment_that_names_no_module_is_refused_and_is_told_what_to_set(nothing: str) -> None:
    said = r'"HEADWATER_MODULES" is .*: set it to your modules, such as bank\.domain,bank\.views, or .*\(buses, .*web\)'
    with pytest.raises(SettingError, match=said):
        read_modules(nothing)


def test_a_folder_without_modules_is_no_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "january.csv").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert read_modules("orders") == ("orders",)


def test_the_domain_of_a_module() -> None:
    assert domain_of("headwater.samples.orders.domain.stock") == domain_of("commands.processes.orders") == "orders"
    assert domain_of("headwater.samples.listings.views") == "listings"
    for other in ("projections.views.streams", "commands.aggregates.orders_of_mine", "orders"):
        assert domain_of(other) is None
