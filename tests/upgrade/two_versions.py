"""A deployment whose programs are of this code, or of an earlier release: each can be started and stopped alone."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import httpx

from compose.ports import free_port
from compose.services import service_specs
from compose.settings import HOST, StackSettings
from projections.supervision.errors import StartFailed
from projections.supervision.supervisor import Supervisor
from tests.conftest import listens
from tests.support.local_http import local_http
from tests.support.processes import ends_of
from tests.support.waiting import BOUND_S, Answer, Latest, eventually

ROOT: Final = Path(__file__).parents[2]
OWN: Final = Path(__file__).parent / "own"
"""The folder with the module of a team, which both versions load."""
RUN_S: Final = 900.0
"""How long a command may take: a rebuild starts Spark several times."""
Part = Literal["commands", "projections", "api"]


def unpacked(release: Path, folder: Path) -> Path:
    """The folder with the packages of a release."""
    code = folder / release.name.partition(".tar")[0]
    with tarfile.open(release) as archive:
        archive.extractall(code, filter="data")
    return code


@dataclass
class Version:
    """The programs of one version. code: the folder of its packages. state: of its handler, as on another machine."""

    code: Path
    state: Path
    stack: StackSettings
    shared: Mapping[str, str]
    api: int = field(default_factory=free_port)
    running: dict[Part, Supervisor] = field(default_factory=dict)

    @property
    def variables(self) -> dict[str, str]:
        """What its programs have; the packages of this code are installed, and those of its own hide them."""
        path = os.pathsep.join([str(self.code), str(OWN)])
        return {**self.stack.endpoints.environment(), **self.shared, "PYTHONPATH": path}

    def start(self, *parts: Part, state: Path | None = None) -> None:
        """Start these programs together and wait until they are ready. state: if not its own."""
        settings = StackSettings(state or self.state, self.stack.ports)
        specs = {each.name: each for each in service_specs(settings, self.api, self.variables)}
        for part in parts:
            self.running[part] = Supervisor([specs[part]])
            self.running[part].begin(part)
        self.wait(*parts)

    def start_listening(self) -> None:
        """Start its API and wait until it listens, as it does before it is ready."""
        specs = service_specs(StackSettings(self.state, self.stack.ports), self.api, self.variables)
        self.running["api"] = Supervisor([each for each in specs if each.name == "api"])
        self.running["api"].begin("api")
        eventually(lambda: listens(self.api), "the API listens")

    def wait(self, *parts: Part) -> None:
        """Wait until these programs are ready."""
        for part in parts:
            try:
                self.running[part][part].wait_healthy()
            except StartFailed as failed:
                raise AssertionError(f"{failed}\n{ends_of(failed.log)}") from None

    def stop(self, *parts: Part) -> None:
        """Stop these programs together, or all."""
        stopping = {part: self.running.pop(part) for part in parts or tuple(self.running)}
        for part, each in stopping.items():
            each[part].release()
        for each in stopping.values():
            each.stop()

    def replay(self, *words: str, state: Path) -> str:
        """What `replay` of this version prints; it must succeed."""
        return self._run("replay", *words, state=state)

    def apply_sources(self) -> str:
        """What `headwater sources apply` of this version prints; it must succeed, unless the connector is not up within
        the minute that the command waits: on a busy machine, it is a little later."""
        return self._run("eventlog.capturing", "apply", state=self.state, unless="not RUNNING, after")

    def _run(self, module: str, *words: str, state: Path, unless: str | None = None) -> str:
        ended = subprocess.run(
            [sys.executable, "-P", "-m", module, *words],
            env={**os.environ, **self.variables, "HEADWATER_STATE": str(state)},
            capture_output=True,
            text=True,
            timeout=RUN_S,
        )
        is_excused = unless is not None and unless in ended.stderr
        assert ended.returncode == 0 or is_excused, ended.stdout + ended.stderr
        return ended.stdout

    def get(self, path: str, **parameters: str) -> Any:
        """What its API answers, once it does."""

        def answered() -> httpx.Response | None:
            answer = self.ask(path, **parameters)
            return None if answer is None or answer.status_code == httpx.codes.SERVICE_UNAVAILABLE else answer

        answer = self._awaited(answered, f"an answer of {path}")
        assert answer is not None and answer.is_success, answer.text if answer else path
        return answer.json()

    def wait_row(self, path: str, **columns: Any) -> None:
        """Wait until a row of a view, or the only one of a page of rows, has these columns."""

        def has_them() -> bool:
            answer = self.ask(f"/views/{path}")
            if answer is None or not answer.is_success:
                return False
            found = answer.json()
            (row,) = found["rows"] if "?" in path and found["rows"] else [found]
            return bool(row.items() >= columns.items())

        self._awaited(has_them, f"{path} with {columns}")

    def ask(self, path: str, **parameters: str) -> httpx.Response | None:
        """Its API's answer, whatever that is; None if there is none, as while its supervisor starts it again."""
        try:
            return local_http().get(f"http://{HOST}:{self.api}{path}", params=parameters or None)
        except httpx.TransportError:
            return None

    def _awaited(self, condition: Callable[[], Answer], what: str) -> Answer:
        """Wait for this; if it does not come, say what the programs have logged last."""
        logs = StackSettings(self.state, self.stack.ports).logs
        return eventually(condition, Latest(lambda: f"{what}:\n{ends_of(logs)}"))

    def send(self, command: str, name: str, **body: Any) -> Any:
        """The answer to a command whose id is `name`."""
        return self._post(f"/commands/{command}", body, {"Idempotency-Key": name.replace(" ", "-")})

    def report(self, observation: str, **report: Any) -> None:
        """Have an observation stored."""
        self._post(f"/observations/{observation}", report, {})

    def _post(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> Any:
        url = f"http://{HOST}:{self.api}{path}"
        answer = local_http().post(url, json=body, headers=headers, timeout=BOUND_S)
        assert answer.is_success, answer.text
        return answer.json()


@contextmanager
def both(release: Path, stack: StackSettings, folder: Path, shared: Mapping[str, str]) -> Iterator[list[Version]]:
    """The earlier version and this one, none of whose programs runs; they are stopped afterwards."""
    with ExitStack() as running:
        versions = [
            Version(unpacked(release, folder), folder / "state", stack, shared),
            Version(ROOT, folder / "state of another machine", stack, shared),
        ]
        for each in versions:
            running.callback(each.stop)
        yield versions
