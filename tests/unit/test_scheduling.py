"""How tests are shared out among processes: what belongs together stays so, and what takes longest begins first."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.support import scheduling
from tests.support.scheduling import ROOT, Seconds, group_of, longest_first, scope_of
from tests.support.typical_seconds import TYPICAL_S

SPARK, CONNECT, MARIADB = (
    "tests/unit/projections_spark/test_late_views.py",
    "tests/integration/sources/test_captured_shop.py",
    "tests/integration/sources/test_reconciled_mariadb.py",
)


def item(nodeid: str, *marks: str) -> Any:
    return SimpleNamespace(nodeid=nodeid, get_closest_marker=lambda mark: mark if mark in marks else None)


def order(items: list[Any], **seconds: float) -> list[str]:
    return [each.nodeid for each in longest_first(items, seconds)]


def test_tests_of_a_group_or_else_of_a_file_are_in_one_process() -> None:
    other = "tests/unit/projections_spark/test_stream_events.py"
    assert scope_of(f"{SPARK}::test_c[x@y]") == scope_of(f"{other}::test_d") == "a Spark session"
    assert scope_of(f"{CONNECT}::test_c") == "Kafka Connect"
    assert scope_of(f"{MARIADB}::test_c") == "another Kafka Connect", "a module's own mark comes before its folder's"
    assert scope_of("tests/unit/test_seeds.py::test_c[x]") == "tests/unit/test_seeds.py"


def test_the_name_of_every_group_is_a_text() -> None:
    files = {path for path in (ROOT / "tests").rglob("*.py") if "xdist_group(" in path.read_text()} - {
        ROOT / "tests" / "unit" / Path(__file__).name, Path(scheduling.__file__)
    }  # fmt: skip
    assert files
    assert [file for file in files if not group_of(file)] == []


def test_scopes_are_sorted_by_what_their_tests_took_and_keep_the_order_of_their_tests() -> None:
    first, last = f"{SPARK}::1", "tests/unit/projections_spark/test_stream_events.py::1"
    items = [item("a::1"), item("b::1"), item(first), item("b::2"), item(last)]
    found = order(items, **{"a::1": 3.0, "b::1": 1.0, "b::2": 4.0, first: 2.0, last: 0.5})
    assert found == ["b::1", "b::2", "a::1", first, last]


def test_what_was_not_measured_is_guessed_by_its_marks() -> None:
    items = [
        item("unit::1"),
        item("real::1", "servers"),
        item("real::2", "servers"),
        item("spark::1", "servers", "jvm"),
    ]
    assert order([*items, item("group::1", "servers", "xdist_group")]) == [
        "spark::1", "group::1", "real::1", "real::2", "unit::1"
    ]  # fmt: skip
    assert order(items, **{"unit::1": 3.0, "real::1": 0.5, "spark::1": 1.0}) == [
        "unit::1", "real::1", "real::2", "spark::1"
    ]  # fmt: skip


def test_in_a_checkout_that_was_never_measured_a_long_file_comes_first() -> None:
    long, longer = sorted(TYPICAL_S, key=lambda file: TYPICAL_S[file])[-2:]
    items = [item("real::1", "servers"), *(item(f"{long}::{n}") for n in range(4)), item(f"{longer}::1", "jvm")]
    assert order(items) == [f"{longer}::1", *(f"{long}::{n}" for n in range(4)), "real::1"]
    assert order(items, **{f"{longer}::1": 1.0})[0] == f"{long}::0", "what was measured counts more"


def test_the_files_of_typical_seconds_are_there() -> None:
    assert [file for file in TYPICAL_S if not (ROOT / file).exists()] == []


def test_seconds_of_tests_that_did_not_run_are_kept_as_long_as_their_file() -> None:
    cache: dict[str, Any] = {}
    kept: Any = SimpleNamespace(get=cache.get, set=cache.__setitem__)

    def run(**took: float) -> dict[str, float]:
        seconds = Seconds(SimpleNamespace(cache=kept))  # type: ignore[arg-type]
        for name, each in took.items():
            for part in (each / 2, each / 2):  # its fixtures, and itself
                seconds.pytest_runtest_logreport(SimpleNamespace(nodeid=name, duration=part))  # type: ignore[arg-type]
        seconds.pytest_sessionfinish()
        return Seconds(SimpleNamespace(cache=kept)).known()  # type: ignore[arg-type]

    first, second = f"{SPARK}::1", f"{CONNECT}::1"
    assert run(**{first: 4.0, second: 2.0, "removed.py::1": 3.0}) == {first: 4.0, second: 2.0}
    assert run(**{second: 3.0}) == {first: 4.0, second: 3.0}
    assert Seconds(SimpleNamespace()).known() == {}  # type: ignore[arg-type]
