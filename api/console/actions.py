"""Actions of people: verbs of `replay`, run as child processes where it is installed, with their output and their end.

The API has neither Spark nor, in a deployment with accounts of their own, the rights to change views. So it changes
nothing itself: it starts the same command that an operator would, with its own environment, and shows it. `replay`
records in the audit log who did what, and refuses what it cannot record.
"""

from __future__ import annotations

import os
import secrets
import shlex
import subprocess
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import Final

from headwater.api.errors import Overloaded
from headwater.api.limits.threads import Threads
from headwater.eventlog.programs.modules import SAFE_PATH

NEEDED: Final = ("pyspark", "pyarrow", "adbc_driver_postgresql", "typer")
"""Libraries of `replay`."""
MAX_RUNNING: Final = 2
MAX_KEPT: Final = 50
MAX_LINES: Final = 500
MAX_LINE_CHARACTERS: Final = 2_000
ACTOR: Final = "HEADWATER_ACTOR"
END_S: Final = 5.0
"""How long a child has to end when the API stops, in seconds."""
DRY_RUN_S: Final = 60.0


@dataclass
class Action:
    """A command that was started here.

    words: of the command. actor: who started it; None if that is not known. lines: the last ones of its output.
    exit_code: None while it runs.
    """

    id: str
    words: Sequence[str]
    actor: str | None
    began: datetime
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=MAX_LINES))
    ended: datetime | None = None
    exit_code: int | None = None

    @property
    def command(self) -> str:
        """The command as a person types it."""
        return shown_command(self.words)


class Actions:
    """The actions of one process. A resource of the application. program: what runs a command's words."""

    def __init__(
        self,
        program: Sequence[str] = (sys.executable, *SAFE_PATH, "-m", "headwater"),
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._program, self._environ = program, environ
        self._actions = OrderedDict[str, Action]()
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        self._threads = Threads(1, "dry-runs")

    @property
    def missing(self) -> Sequence[str]:
        """Libraries without which `replay` does not run here; none, if it does."""
        return [each for each in NEEDED if find_spec(each) is None]

    @property
    def all(self) -> list[Action]:
        """The last actions, the newest first."""
        return list(reversed(self._actions.values()))

    def get(self, action_id: str) -> Action | None:
        """The action with this id, if it is still known."""
        return self._actions.get(action_id)

    def start(self, words: Sequence[str], actor: str | None) -> Action:
        """Start a command, such as `("replay", "verify", "listings")`; raises Overloaded if too many run."""
        with self._lock:
            if len(self._children) >= MAX_RUNNING:
                raise Overloaded("actions of this console", MAX_RUNNING)
            action = Action(secrets.token_hex(8), tuple(words), actor, datetime.now(UTC))
            child = self._child(words, actor)
            self._children[action.id] = child
            self._actions[action.id] = action
            while len(self._actions) > MAX_KEPT:
                oldest = next(key for key in self._actions if key not in self._children)
                del self._actions[oldest]
        threading.Thread(target=self._follow, args=(action, child), name=f"action-{action.id}", daemon=True).start()
        return action

    async def dry_run(self, words: Sequence[str]) -> str:
        """What a command that changes nothing prints; one runs at a time."""
        return await self._threads.run(self._dry_run, words)

    def _dry_run(self, words: Sequence[str]) -> str:
        child = self._child(words, None)
        try:
            output, _ = child.communicate(timeout=DRY_RUN_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            return f"no answer within {DRY_RUN_S:g} s"
        return output.decode(errors="replace").strip()

    def _child(self, words: Sequence[str], actor: str | None) -> subprocess.Popen[bytes]:
        environ = {**self._environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "160"}
        if actor is not None:
            environ[ACTOR] = actor
        return subprocess.Popen(
            [*self._program, *words],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def _follow(self, action: Action, child: subprocess.Popen[bytes]) -> None:
        """Read the output of a child up to its end."""
        assert child.stdout is not None  # noqa: S101 - it was asked for
        with child.stdout as output:
            while line := output.readline(MAX_LINE_CHARACTERS):
                action.lines.append(line.decode(errors="replace").rstrip("\r\n"))
        code = child.wait()
        with self._lock:
            del self._children[action.id]
            action.exit_code, action.ended = code, datetime.now(UTC)

    async def open(self) -> None:
        """Nothing to do: children are started by people."""

    async def close(self) -> None:
        """End the children: nobody would see what becomes of them."""
        self._threads.close()
        children = list(self._children.values())
        for each in children:
            each.terminate()
        for each in children:
            try:
                each.wait(END_S)
            except subprocess.TimeoutExpired:
                each.kill()


def shown_command(words: Sequence[str]) -> str:
    """A command as a person types it in a shell."""
    return shlex.join(words)
