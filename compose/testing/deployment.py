"""A running deployment of some modules: its programs as processes of this machine, and what a test does with them."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import httpx

from headwater.commands.declaring.observation import Observation
from headwater.commands.sending.client import BlockingCommandClient, open_blocking_client
from headwater.compose.errors import ComposeError
from headwater.compose.ports import free_port
from headwater.compose.services import local_keys, replay, required, service_specs, wait_for_views
from headwater.compose.settings import HOST, StackSettings
from headwater.eventlog.programs.modules import VARIABLE
from headwater.projections.supervision.supervised import Supervisor

VIEWS_S: Final = 300.0
"""How long a view may take to show what was written: on a busy machine, Spark starts in a minute."""
WAIT_MS: Final = 10_000
LOOK_AGAIN_S: Final = 0.2
KEPT: Final = ("HEADWATER_CACHE", "HEADWATER_MAVEN", "HEADWATER_LOG_LEVEL", "HEADWATER_LOG_FORMAT")
"""Variables of the shell that hold here too; all others are about another deployment."""


@dataclass
class RunningDeployment:
    """The handler, the projections and the API of some modules, on real servers.

    api: the URL of its API. variables: the environment of its programs, for `subprocess` and `open_client`. servers:
    where they listen. http: a client of the API, from its root.
    """

    api: str
    variables: Mapping[str, str]
    servers: StackSettings
    http: httpx.Client
    _opened: ExitStack = field(repr=False)
    _reported: dict[str, int] = field(default_factory=dict)

    @cached_property
    def commands(self) -> BlockingCommandClient:
        """The Python client, as in docs/client.md; this process must find the modules under test, too."""
        return self._opened.enter_context(open_blocking_client(self.variables))

    @property
    def position(self) -> str:
        """Up to where views must have applied the log to show all that was sent and reported here: for `?after=`."""
        reported = [f"{source}:{offset}" for source, offset in sorted(self._reported.items())]
        sent = self.commands.position if "commands" in vars(self) else ""
        return ",".join([*filter(None, [sent]), *reported])

    def send(self, command: Any, **options: Any) -> Any:
        """Send a command, and return its receipt once it is decided.

        options: `command_id`, `expected_version` and the others of docs/client.md. Raises its errors, such as Rejected.
        """
        return self.commands.send(command, **options)

    def report(
        self, observation: Observation, *, id: str = "", source: str = "test", time: datetime | None = None
    ) -> None:
        """Report an observation. id: a new one by default; time: with an offset from UTC, now by default.

        Raises httpx.HTTPStatusError if the API refuses it.
        """
        body: dict[str, Any] = {"id": id or uuid.uuid4().hex, "source": source}
        body |= {} if time is None else {"time": time.isoformat()}
        body["data"] = observation.model_dump(mode="json")
        answer = self.http.post(f"/observations/{observation.type}", json=body)
        _raise_for_status(answer)
        at, _, offset = answer.json()["position"].rpartition(":")
        self._reported[at] = max(int(offset), self._reported.get(at, -1))

    def row(self, view: str, key: str, **parameters: str) -> dict[str, Any] | None:
        """The row of a view with this key, once the view has applied all that was sent and reported here; None: none.

        parameters: of the request, such as `fields`. Raises ComposeError if the view has not done so in VIEWS_S.
        """
        rows: list[dict[str, Any]] = self._read(f"/views/{view}/rows", {"key": key, **parameters})["rows"]
        return rows[0] if rows else None

    def rows(self, view: str, **parameters: str) -> list[dict[str, Any]]:
        """A page of rows, likewise. parameters: filters, `sort`, `limit` and the others of docs/http.md."""
        rows: list[dict[str, Any]] = self._read(f"/views/{view}", parameters)["rows"]
        return rows

    def rebuild(self, *views: str) -> dict[str, Any]:
        """Rebuild these views from the log while the old ones answer, as `replay rebuild` does; its JSON document.

        Without views, all of them.
        """
        return self.replay("rebuild", *(views or ("--all",)))

    def verify(self, *views: str) -> dict[str, Any]:
        """Compare each row of these views, or of all, with a separate rebuild; raises ComposeError if one differs."""
        return self.replay("verify", *(views or ("--all",)))

    def replay(self, *words: str) -> dict[str, Any]:
        """Run `replay` with these words and `--json`; its document. Raises ComposeError with its error."""
        return replay(self.variables, *words)

    def _read(self, path: str, parameters: Mapping[str, str]) -> Any:
        """The answer once the view has what was written: 503 says that it still lacks it."""
        deadline = time.monotonic() + VIEWS_S
        after = {"after": self.position, "wait_ms": str(WAIT_MS)} if self.position else {}
        while True:
            answer = self.http.get(path, params={**after, **parameters})
            if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                _raise_for_status(answer)
                return answer.json()
            if time.monotonic() > deadline:
                logs = Path(self.variables["HEADWATER_STATE"]) / "logs"
                raise ComposeError(f"{path} lacks what was written after {VIEWS_S:.0f} s: {answer.text}; see '{logs}'")
            time.sleep(LOOK_AGAIN_S)


def _raise_for_status(answer: httpx.Response) -> None:
    """As httpx does, with the problem that the answer describes."""
    if answer.is_error:
        message = (
            f"{answer.request.method} {answer.request.url} was answered {answer.status_code}: {answer.text[:2000]}"
        )
        raise httpx.HTTPStatusError(message, request=answer.request, response=answer)


@contextmanager
def running_deployment(
    servers: StackSettings, modules: Sequence[str], state: Path, settings: Mapping[str, str] | None = None
) -> Iterator[RunningDeployment]:
    """Run a deployment of `modules` on these servers until the block ends, under a new HEADWATER_ENVIRONMENT.

    modules: as in HEADWATER_MODULES. state: an empty folder for its local state and logs. settings: further variables.
    Raises StartFailed with the log of a program that does not start.
    """
    port = free_port()
    variables = variables_of(servers, modules, state, os.environ) | dict(settings or {})
    supervisor = Supervisor(service_specs(StackSettings(state, servers.ports), port, variables))
    api = f"http://{HOST}:{port}"
    supervisor.start()
    try:
        wait_for_views(api, VIEWS_S)
        with ExitStack() as opened:
            # none stays open: the API closes idle connections, maybe at the moment at which a request is sent
            limits = httpx.Limits(max_keepalive_connections=0)
            client = httpx.Client(base_url=api, timeout=600.0, trust_env=False, limits=limits)
            http = opened.enter_context(client)
            yield RunningDeployment(api, {**os.environ, **variables}, servers, http, opened)
    finally:
        supervisor.stop()


def variables_of(
    servers: StackSettings, modules: Sequence[str], state: Path, environ: Mapping[str, str]
) -> dict[str, str]:
    """The variables of a new deployment: those of the shell about another one are emptied."""
    variables = {name: "" for name in environ if name.startswith("HEADWATER_") and name not in KEPT}
    variables |= {
        **servers.endpoints.environment(),
        **required(servers, modules),
        **local_keys(StackSettings(state, servers.ports), {}),
        "HEADWATER_ENVIRONMENT": f"test_{uuid.uuid4().hex[:12]}",
        VARIABLE: ",".join(modules),
        "HEADWATER_STATE": str(state),
        "HEADWATER_ANSWER_TIMEOUT_S": "60",
    }
    if folders := import_folders(modules):
        variables["PYTHONPATH"] = os.pathsep.join([*folders, *filter(None, [environ.get("PYTHONPATH")])])
    return variables


def import_folders(modules: Sequence[str]) -> list[str]:
    """The folders that its programs need on PYTHONPATH to find `modules`, because pytest has added them to its own.

    Not those that Python looks in anyway: where packages are installed, and the current folder, in which programs of
    Headwater look after all others.
    """
    known = {str(Path.cwd()), *(folder for folder in sys.path if folder.endswith(("site-packages", "dist-packages")))}
    folders = []
    for name in modules:
        top = name.partition(".")[0]
        if (spec := importlib.util.find_spec(top)) is None:
            continue  # a sample, or a module that is not there, which the programs name
        places = [Path(location).parent for location in spec.submodule_search_locations or ()]
        if not places and spec.origin:
            places = [Path(spec.origin).parent]
        folders += [str(place.resolve()) for place in places]
    return [folder for folder in dict.fromkeys(folders) if folder not in known]
