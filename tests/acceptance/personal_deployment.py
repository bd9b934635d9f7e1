"""One deployment for all tests of personal values, which have persons and views of their own on it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Self

from headwater.compose.settings import StackSettings
from headwater.compose.testing.deployment import RunningDeployment, running_deployment, variables_of

MODULES: Final = ("tests.support.personal_customers", "tests.support.clear_patrons")
VISITS: Final = "tests.support.personal_visits"
"""The module with stream views, whose queries start slowly."""


class PersonalDeployment:
    """Its programs run from when a test first asks for them.

    early: modules that it may have before `late`. state: the folder of its programs.
    """

    def __init__(self, stack: StackSettings, folder: Path, early: Sequence[str], late: Sequence[str]) -> None:
        self.stack, self.state = stack, folder / "state"
        self.state.mkdir()
        self._early, self._late = early, late
        self._same = {"HEADWATER_ENVIRONMENT": f"t_{uuid.uuid4().hex[:10]}", "HEADWATER_PARTITIONS": "2"}
        self._programs = ExitStack()
        self._running: RunningDeployment | None = None
        self._modules: dict[str, None] = {}

    def variables(self) -> dict[str, str]:
        """Of a command that knows the later modules only."""
        return variables_of(self.stack, self._late, self.state, os.environ) | self._same

    @contextmanager
    def before(self) -> Iterator[RunningDeployment]:
        """The programs with the earlier modules, which are stopped when the block ends."""
        assert self._running is None, "they run with the later ones"
        with running_deployment(self.stack, self._early, self.state, self._same) as running:
            yield running

    def running(self, *more: str) -> RunningDeployment:
        """The programs with all other modules and these; they are stopped with the deployment, or for more modules."""
        modules = dict.fromkeys([*self._late, *MODULES, *more])
        if self._running is None or not modules.keys() <= self._modules.keys():
            self._programs.close()
            starting = running_deployment(self.stack, list(modules), self.state, self._same)
            self._running, self._modules = self._programs.enter_context(starting), modules
        return self._running

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._programs.close()
