"""Bench `cost`: the processor time that one command takes everywhere, from HTTP to the last row.

It starts servers of its own, the handler, the read side and the API, and reads what all their processes spend, user and
system time, while commands come at a steady rate; the client is not counted. The time that is measured ends when every
view shows the last command. So a rate includes what the deployment spends when it is idle, which has a line of its own.
The last lines are the same way written by hand, without HTTP.

`HEADWATER_BENCH_AGAINST` names another checkout: both are measured in turns, `HEADWATER_BENCH_ROUNDS` times, and each
line has the ratio of the medians. The client is always this checkout's, and so is the Python that runs both.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson

from headwater.compose.ports import free_port, free_ports
from headwater.compose.settings import StackSettings
from tests.bench._deployment import ROOT, accepted, in_every_view, process, wait_live
from tests.bench._processes import COMPILING, KafkaRequests, pid_of, spent_s
from tests.bench._servers import answers
from tests.bench._waiting import eventually

NAMES = ("cost",)
WARM_UP: Final = (("commands", 20, 10), ("ndjson", 500, 30), ("commands", 200, 15))
"""How, how many per second, and for how many seconds: Java compiles what runs often in the first minute."""
RATES: Final = (1, 20, 100, 500)
SECONDS: Final = 15
OBSERVATIONS_A_SECOND: Final = 100
BY_HAND: Final = "tests.bench._cost_by_hand"
AFTER_ALL: Final = 6
"""Commands at the end of a rate that are waited for in every view, whatever partition they went through."""

Line = dict[str, Any]


def run(name: str) -> Iterator[Line]:
    """A line per rate; with another checkout, those of both in turns, and then the medians and their ratios."""
    other = os.environ.get("HEADWATER_BENCH_AGAINST")
    rounds = int(os.environ.get("HEADWATER_BENCH_ROUNDS", "3" if other else "1"))
    checkouts = [ROOT, *([Path(other).absolute()] if other else [])]
    found: dict[str, dict[Path, list[float]]] = defaultdict(lambda: defaultdict(list))
    for _ in range(rounds):
        for checkout in checkouts:
            for line in _measured(checkout):
                found[line["what"]][checkout].append(line["value"])
                found[f"{line['what']}, without compiling"][checkout].append(line["without_compiling"])
                yield line | ({"checkout": str(checkout)} if other else {})
    yield from _by_hand()
    if other:
        yield from (_compared(what, [found[what][checkout] for checkout in checkouts]) for what in found)


def _compared(what: str, values: list[list[float]]) -> Line:
    ours, theirs = (statistics.median(value) if value else float("nan") for value in values)
    shown = {"what": what, "value": ours, "floor": theirs, "ratio": round(ours / theirs, 3), "all": values[0]}
    unit = "cores" if what.startswith("idle") else "ms/command"
    return {**shown, "unit": unit, "conditions": f"{what}; against: {values[1]}"}


@dataclass(frozen=True)
class Running:
    """A deployment that runs. roots: the processes at the top of its trees, by name."""

    url: str
    roots: Mapping[str, int]
    requests: KafkaRequests


def _measured(checkout: Path) -> Iterator[Line]:
    with deployment(checkout) as running:
        load = _Load(running.url)
        for how, rate, seconds in WARM_UP:
            load.send(how, rate, seconds)
        yield _line(running, "idle", _idle)
        for how, shown in (("commands", "one by one"), ("ndjson", "in NDJSON")):
            for rate in RATES:
                yield _line(running, f"{rate}/s {shown}", partial(load.send, how, rate, SECONDS))
        what = f"{OBSERVATIONS_A_SECOND} observations/s one by one"
        yield _line(running, what, partial(load.send, "observations", OBSERVATIONS_A_SECOND, SECONDS))


@dataclass(frozen=True)
class Sent:
    """What was sent. number: of commands or observations. took: quantiles of the time to the answer of a request."""

    number: int
    took: Mapping[str, float]


def _by_hand() -> Iterator[Line]:
    """A line per rate of the same way by hand, on servers of its own: see `_cost_by_hand`."""
    sent = 0
    with _servers(ROOT, {}) as servers:

        def run(*words: object) -> None:
            argv = [sys.executable, "-m", BY_HAND, *map(str, words)]
            subprocess.run(argv, cwd=ROOT, env=servers.variables, check=True)

        def send(rate: int, seconds: int) -> Sent:
            nonlocal sent
            run("send", sent, rate, seconds)
            sent += rate * seconds
            return Sent(rate * seconds, {})

        run("prepare")
        parts = ("decide", "postgres", "elasticsearch", "valkey")
        roots = servers.roots | {f"by hand {part}": servers.start(part, BY_HAND, part) for part in parts}
        running = Running("", roots, KafkaRequests(pid_of("kafka", roots["servers"])))
        for _, rate, seconds in WARM_UP:
            send(rate, seconds)
        for rate in RATES:
            yield _line(running, f"{rate}/s by hand, without HTTP", partial(send, rate, SECONDS))


class _Load:
    """Sends with a client in a process of its own."""

    def __init__(self, url: str) -> None:
        self._url, self._run, self._sent = url, f"cost-{uuid.uuid4().hex[:8]}", 0
        self._client("prepare", 0, 0)

    def send(self, how: str, rate: int, seconds: int) -> Sent:
        """Send, and wait until every view shows it. how: see `_cost_load.load`."""
        sent = self._client(how, rate, seconds)
        self._sent += sent.number
        if how == "observations":
            return sent
        settle(self._url)
        return replace(sent, number=sent.number + AFTER_ALL)

    def _client(self, how: str, rate: int, seconds: int) -> Sent:
        words = [sys.executable, "-m", "tests.bench._cost_load", self._url, how, self._run]
        words += map(str, (self._sent, rate, seconds))
        found = orjson.loads(subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
        return Sent(found["sent"], {"p50_ms": found["p50_ms"], "p99_ms": found["p99_ms"]})


def _idle() -> Sent:
    time.sleep(SECONDS)
    return Sent(0, {})


def _line(running: Running, what: str, send: Callable[[], Sent]) -> Line:
    """What was spent while `send` ran, which returns how much it sent: per command, or per second if nothing."""
    asked, began, spent = running.requests.counts(), time.monotonic(), spent_s(running.roots)
    answered = send()
    sent = answered.number
    spent, seconds = spent_s(running.roots) - spent, time.monotonic() - began
    asked = running.requests.counts() - asked
    per, unit = (1000 / sent, "ms/command") if sent else (1 / seconds, "cores")
    by = {part: round(value * per, 3) for part, value in spent.most_common()}
    parts = ", ".join(f"{part} {value}" for part, value in by.items())
    took = "".join(f", {value} ms ({name.removesuffix('_ms')}) to an answer" for name, value in answered.took.items())
    return {
        "what": what,
        "value": round(spent.total() * per, 3),
        "unit": unit,
        "without_compiling": round((spent.total() - spent[COMPILING]) * per, 3),
        "by": by,
        "cores": round(spent.total() / seconds, 3),
        "answered": answered.took,
        "kafka_requests": round(asked.total() / (sent or seconds), 2),
        "kafka_requests_by": {name: round(count / (sent or seconds), 2) for name, count in asked.most_common(6)},
        "conditions": f"{what}, {sent} in {seconds:.1f} s up to the last row{took}: {parts}",
    }


def settle(url: str) -> None:
    """Wait until what was sent before is in every view."""
    keys = [uuid.uuid4().hex for _ in range(AFTER_ALL)]
    if not all(accepted(url, key) for key in keys):
        raise RuntimeError("a listing was refused")
    for key in keys:
        eventually(partial(in_every_view, url, key), "the load is in every view", 300)


@contextmanager
def deployment(checkout: Path, *, handlers: int = 1, workers: int = 1) -> Iterator[Running]:
    """Servers and services of this checkout, which end with the block, and their data with them.

    handlers: processes that decide commands. workers: processes of the API.
    """
    port = free_port()
    variables = {
        "HEADWATER_ENVIRONMENT": "cost",
        "HEADWATER_API_PORT": str(port),
        "HEADWATER_API_WORKERS": str(workers),
    }
    with _servers(checkout, variables) as servers:
        roots, start = servers.roots, servers.start
        roots |= {name: start(name, name) for name in ("commands", "projections", "api")}
        roots |= {f"commands{number}": start(f"commands{number}", "commands") for number in range(2, handlers + 1)}
        url = f"http://127.0.0.1:{port}"
        wait_live(url)
        yield Running(url, roots, KafkaRequests(pid_of("kafka", roots["servers"])))


@dataclass(frozen=True)
class Servers:
    """Servers that run. roots: as of Running. start: starts a module, given the name of its log and its arguments, and
    returns its process. variables: the environment of all of these.
    """

    roots: dict[str, int]
    start: Callable[..., int]
    variables: Mapping[str, str]


@contextmanager
def _servers(checkout: Path, more: Mapping[str, str]) -> Iterator[Servers]:
    """Servers of this checkout, and what is started beside them. more: variables of their environment."""
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="headwater-bench-")))
        folder.chmod(0o711)  # PostgreSQL's user must pass it, if this is root
        stack = StackSettings(folder, free_ports())
        ports = {stack.ports.variable(name): str(value) for name, value in stack.ports.model_dump().items()}
        variables = {
            **os.environ,
            **ports,
            **stack.endpoints.environment(),
            "PYTHONPATH": str(checkout),
            "HEADWATER_STATE": str(folder),
            **more,
        }

        def start(name: str, part: str, *words: str) -> int:
            program = ["-P", "-m", f"headwater.{part}", *words]
            return running.enter_context(process(program, variables, folder / f"{name}.log", checkout))

        try:
            roots = {"servers": start("servers", "compose", "up")}
            _wait_for_servers(stack)
            yield Servers(roots, start, variables)
        except BaseException:
            for file in sorted(folder.glob("*.log")):
                print(f"--- {file.name}\n{file.read_text(errors='replace')[-2000:]}", file=sys.stderr)
            raise


def _wait_for_servers(stack: StackSettings) -> None:
    endpoints = stack.endpoints
    for address in (endpoints.kafka, endpoints.postgres, endpoints.elasticsearch, endpoints.valkey):
        eventually(partial(answers, address), f"{address} answers", 180)
