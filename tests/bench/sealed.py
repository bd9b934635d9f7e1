"""Bench `sealed`: commands with two personal fields, a rebuild and a page with a sealed column, against none.

Both kinds are measured in turns on one deployment. `HEADWATER_BENCH_ROUNDS` says how many turns.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from headwater.commands.declaring.aggregate import Command
from headwater.compose.settings import StackSettings
from headwater.compose.testing.deployment import RunningDeployment, running_deployment
from tests.bench import _sealed_customers
from tests.bench._sealed_customers import RegisterPerson, RegisterShopper

NAMES = ("sealed",)
ROUNDS: Final = int(os.environ.get("HEADWATER_BENCH_ROUNDS", "5"))
PERSONS: Final = 4_000
TIMES: Final = 5
"""How often each is registered in a round."""
PAGES: Final = 100
KINDS: Final[dict[str, tuple[type[Command], str]]] = {
    "sealed": (RegisterPerson, "person_id"),
    "clear": (RegisterShopper, "shopper_id"),
}
VIEWS: Final = {"sealed": "persons", "clear": "shoppers"}
OPENED: Final = {"sealed": "persons_in_clear", "clear": "shoppers"}
"""A view that opens a sealed column, and one without any."""

Line = dict[str, Any]


def run(name: str) -> Iterator[Line]:
    """Four lines: commands, rebuilds with a sealed column and with one in clear, and pages."""
    with (
        tempfile.TemporaryDirectory() as state,
        running_deployment(
            StackSettings.from_environ(os.environ), [_sealed_customers.__name__], Path(state)
        ) as running,
    ):
        # the first round makes the keys of all persons
        first = {kind: send(running, kind, 0) for kind in KINDS}
        number = PERSONS * TIMES
        conditions = f"{number} commands of {PERSONS} persons with two personal fields through the Python client, "
        yield ratio_of(
            "commands", "commands/s", in_turns(lambda kind, turn: number / send(running, kind, turn + 1)), 0,
            {"first": round(number / first["sealed"]), "conditions": f"{conditions}one handler; first: with new keys"},
        )  # fmt: skip
        running.rows(VIEWS["sealed"], limit="1")  # all is applied
        rebuilt = in_turns(lambda kind, _: rebuild(running, VIEWS[kind]))
        yield ratio_of(
            "rebuild", "events/s", rebuilt, 0, {"conditions": "a view with a sealed column, by local processes"}
        )
        opened = in_turns(lambda kind, _: rebuild(running, OPENED[kind]))
        yield ratio_of(
            "rebuild in clear", "events/s", opened, 0,
            {"conditions": "a view whose table has one personal plaintext column, by local processes"},
        )  # fmt: skip
        pages = in_turns(lambda kind, _: page_ms(running, VIEWS[kind]))
        yield ratio_of(
            "page", "ms", pages, 2, {"conditions": f"100 rows with one sealed column, the median of {PAGES}"}
        )


def in_turns(measured: Callable[[str, int], float]) -> dict[str, list[float]]:
    """What is measured of each kind, in turns."""
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for turn in range(ROUNDS):
        for kind in list(KINDS) if turn % 2 else reversed(KINDS):
            found[kind].append(measured(kind, turn))
    return found


def ratio_of(what: str, unit: str, found: dict[str, list[float]], digits: int, more: Line) -> Line:
    """The medians of sealed and clear, and their ratio."""
    sealed, clear = (statistics.median(found[kind]) for kind in ("sealed", "clear"))
    return {
        "what": what,
        "value": round(sealed, digits) if digits else round(sealed),
        "unit": unit,
        "floor": round(clear, digits) if digits else round(clear),
        "ratio": round(sealed / clear, 3),
        "ratios": [round(one / other, 3) for one, other in zip(found["sealed"], found["clear"], strict=True)],
        **more,
    }


def send(running: RunningDeployment, kind: str, turn: int) -> float:
    """Seconds until all commands of a round are decided."""
    made, id_field = KINDS[kind]

    def commands() -> Iterator[Command]:
        for time_ in range(TIMES):
            for number in range(PERSONS):
                values = {"email": f"p{number}-{turn}-{time_}@example.org", "name": f"Person {number}", "city": "Galt"}
                yield made(**{id_field: f"p{number}", **values})

    began = time.perf_counter()
    for outcome in running.commands.send_many(commands()):
        if outcome.error is not None:
            raise outcome.error
    return time.perf_counter() - began


def rebuild(running: RunningDeployment, view: str) -> float:
    """Events per second of a rebuild."""
    (built,) = running.rebuild(view)["views"]
    return float(built["events"] / built["seconds"])


def page_ms(running: RunningDeployment, view: str) -> float:
    """The median time of a page of 100 rows."""
    took = []
    for _ in range(PAGES):
        began = time.perf_counter()
        running.http.get(f"/views/{view}", params={"limit": "100"}).raise_for_status()
        took.append((time.perf_counter() - began) * 1_000)
    return statistics.median(took)
