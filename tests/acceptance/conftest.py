"""Headwater as its user runs it: the handler, the projections and the API as processes, with an outside package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from headwater.compose.settings import StackSettings
from headwater.compose.testing.deployment import RunningDeployment, running_deployment
from tests.acceptance.guests import write_guests
from tests.acceptance.personal_deployment import PersonalDeployment
from tests.support.collector import Collector, collecting
from tests.support.pages import blocks
from tests.support.waiting import Latest, eventually
from tests.unit.headwater.test_extras import installed_by

PACKAGE = Path(__file__).parent / "own_package"
ROOT = Path(__file__).parents[2]
RESERVED_STOCK = Path(__file__).parent / "reserved_stock"
"""The folder with this module."""


ORDER = {"test_resealed.py": -1, "test_demo.py": 1}
"""What stops the programs of its deployment is first, and what verifies all that other tests wrote is last."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [number for number, item in enumerate(items) if item.path.parent == PACKAGE.parent]
    ordered = sorted((items[number] for number in here), key=lambda item: ORDER.get(item.path.name, 0))
    for number, item in zip(here, ordered, strict=True):
        items[number] = item


def pytest_itemcollected(item: pytest.Item) -> None:
    """One process starts the service."""
    if item.get_closest_marker("xdist_group") is None:
        item.add_marker(pytest.mark.xdist_group("a running service"))


WAIT_MS = "30000"
"""What a request may wait at most."""


def must_wait_on(request: httpx.Request, answer: httpx.Response) -> bool:
    """Whether a view still lacks what the request waits for: on a busy machine that takes longer than it may wait."""
    return answer.status_code == 503 and "after" in request.url.params


class Patient(httpx.HTTPTransport):
    """Repeats a request until the view has what it waits for."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        last: list[httpx.Response] = []

        def is_answered() -> bool:
            last[:] = [super(Patient, self).handle_request(request)]
            if must_wait_on(request, last[0]):
                last[0].read()
                return False
            return True

        eventually(is_answered, f"an answer of {request.url}")
        return last[0]


def passes_eventually(check: Callable[[], object]) -> None:
    """Return once `check` raises no AssertionError: for what views show, which have each event a little later."""
    failed: list[AssertionError] = []

    def passes() -> bool:
        try:
            check()
        except AssertionError as error:
            failed[:] = [error]
            return False
        return True

    eventually(passes, Latest(lambda: str(failed[0])), every_s=0.5)


def only_reads(script: str) -> bool:
    """Whether commands of a page do nothing but read from the API, so that they may be repeated."""
    lines = re.sub(r"\\\n", " ", script).splitlines()
    commands = [line for line in lines if line and not line.startswith("#")]
    return all(command.startswith("curl ") and not SENDS.search(command) for command in commands)


SENDS = re.compile(r" (-d|-X|-T|--data)\b")


@dataclass(frozen=True)
class Service:
    """A running service: where its API is, the environment of its processes, and what users' tests have of it."""

    api: str
    environment: dict[str, str]
    deployment: RunningDeployment


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Headwater's own, built once for all tests that install it: as `make release` does, from the sdist beside it."""
    target = tmp_path_factory.mktemp("dist")
    if uv := shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"):
        lock = ROOT / "compose" / "containers" / "build.lock"
        words = [uv, "build", "--quiet", "--build-constraints", str(lock), "--require-hashes", "--out-dir", str(target)]
    else:
        words = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(target), str(ROOT)]
    subprocess.run(words, cwd=ROOT, check=True, timeout=600)
    (built,) = target.glob("headwater-*.whl")
    return built


def install(wheel: Path, extra: str, folder: Path) -> None:
    """Do in the environment in `folder`, which has no pip, what `pip install headwater[EXTRA]` does, from the wheel and
    the libraries of this environment.
    """
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    subprocess.run([*pip, "install", "--quiet", "--no-index", "--no-deps", str(wheel)], check=True, timeout=600)
    (site,) = folder.glob("lib/python3*/site-packages")
    for name, each in installed_by("headwater", frozenset({extra}), set()).items():
        for top in {file.parts[0] for file in each.files or () if file.parts[0] not in {"..", "__pycache__"}}:
            if name != "headwater" and not (site / top).exists():
                (site / top).symlink_to(str(each.locate_file(top)))


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the package `shop` is installed in, on its own."""
    target = tmp_path_factory.mktemp("site")
    source = tmp_path_factory.mktemp("source") / "shop"
    subprocess.run(["cp", "-r", str(PACKAGE), str(source)], check=True)
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(source)],
        check=True,
    )
    return target


@pytest.fixture(scope="session")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project that `headwater new bank` writes."""
    folder = tmp_path_factory.mktemp("projects")
    subprocess.run([sys.executable, "-m", "headwater", "new", "bank"], cwd=folder, check=True)
    return folder / "bank"


@pytest.fixture(scope="session")
def wallet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `wallet.py`, the example of the README."""
    folder = tmp_path_factory.mktemp("wallet")
    (folder / "wallet.py").write_text("\n".join(blocks("python", (ROOT / "README.md").read_text())))
    return folder


@pytest.fixture(scope="session")
def collector() -> Iterator[Collector]:
    """Takes the traces of the service."""
    with collecting() as listening:
        yield listening


@pytest.fixture(scope="session")
def service(
    stack: StackSettings,
    shop: Path,
    bank: Path,
    wallet: Path,
    collector: Collector,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Service]:
    """Headwater with samples, `shop`, a new project and the wallet, in an environment of its own."""
    modules = ("listings", "orders", "shop.domain", "shop.views", "bank", "wallet", "reserved_stock")
    settings = {
        **collector.variables,
        "OTEL_TRACES_SAMPLER": "parentbased_always_off",
        "PYTHONPATH": os.pathsep.join(map(str, (shop, bank, wallet, RESERVED_STOCK))),
    }
    with running_deployment(stack, modules, tmp_path_factory.mktemp("state"), settings) as running:
        _wait_for_the_live_query(running.api)
        yield Service(running.api, dict(running.variables), running)


def _wait_for_the_live_query(api: str) -> None:
    """Return once a command has changed a view: a live query that starts is late by more than a request may wait."""
    body = {"basket_id": "b0", "product": "water", "pieces": 1}
    sent = httpx.post(f"{api}/commands/basket.add_product", json=body, timeout=120)
    after = {"after": sent.raise_for_status().json()["position"], "wait_ms": "1000"}
    with httpx.Client(timeout=120) as client:
        eventually(lambda: client.get(f"{api}/views/product_demand/water", params=after).is_success, "the view has it")


@pytest.fixture(scope="session")
def personal(stack: StackSettings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PersonalDeployment]:
    """Of all tests about personal values; one of them has a package whose fields become personal."""
    folder = tmp_path_factory.mktemp("personal")
    before, after = write_guests(folder)
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(folder)
        with PersonalDeployment(stack, folder, [before], [after]) as opened:
            yield opened


@pytest.fixture
def deployment(personal: PersonalDeployment) -> RunningDeployment:
    """That of personal values, which runs."""
    return personal.running()


@pytest.fixture
def http(service: Service) -> Iterator[httpx.Client]:
    """A client of the service's API."""
    # none stays open: the API closes idle connections, maybe at the moment at which a request is sent
    transport = Patient(limits=httpx.Limits(max_keepalive_connections=0))
    with httpx.Client(base_url=service.api, timeout=600.0, transport=transport) as client:
        yield client
