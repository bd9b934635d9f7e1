"""The address of the log and the names of this deployment, read once from the environment."""

from __future__ import annotations

import os
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, ClassVar, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from headwater.eventlog.errors import SettingError
from headwater.eventlog.programs.command_line import called_as
from headwater.eventlog.programs.modules import read_modules
from headwater.eventlog.programs.running_deployment import STATE_FOLDER
from headwater.eventlog.programs.variables import Brokers, Count, Days, EnvironmentName, Variables
from headwater.eventlog.security import KafkaSecurity


@dataclass(frozen=True)
class LogSettings:
    """One deployment's log.

    environment: prefix of every topic, group, transactional id, schema, index and key that it owns.
    bootstrap: Kafka's `host:port` list.
    partitions: of `commands`, `events`, `snapshots` and `receipts`; fixed when they are created.
    patch_partitions: of `patches`.
    replication: copies of each partition.
    receipts_days: how long a retried command is sure to get its first receipt.
    state: directory for local state of the processes.
    checkpoints: a folder or URL for the state of stream views, which all machines share; empty: in `state`.
    modules: what the deployment loads: samples, and dotted names of the user's packages (`read_modules`). The
    environment must name some.
    security: what Kafka's listener at `bootstrap` requires of its clients.
    """

    environment: str = "headwater"
    bootstrap: str = "127.0.0.1:19092"
    partitions: int = 4
    patch_partitions: int = 4
    replication: int = 1
    receipts_days: int = 7
    state: Path = Path(STATE_FOLDER)
    checkpoints: str = ""
    modules: tuple[str, ...] = ()
    security: KafkaSecurity = field(default_factory=KafkaSecurity)

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> LogSettings:
        """Read the `HEADWATER_*` variables of `env`; raises SettingError naming the wrong ones."""
        given = LogVariables.read(env)
        return replace(cls.without_modules(env), modules=read_modules(given.modules))

    @classmethod
    def without_modules(cls, env: Mapping[str, str]) -> LogSettings:
        """The same for a program that loads nothing, without HEADWATER_MODULES."""
        given = LogVariables.read(env)
        return cls(
            environment=given.environment,
            bootstrap=given.kafka,
            partitions=given.partitions,
            patch_partitions=given.patch_partitions,
            replication=given.replication,
            receipts_days=given.receipts_days,
            state=given.state,
            checkpoints=given.checkpoints,
            security=KafkaSecurity.from_environment(env),
        )

    @property
    def described(self) -> str:
        """Which deployment this is, for an operator to check before anything is dropped."""
        return f'environment "{self.environment}" at {self.bootstrap}, modules {", ".join(self.modules) or "none"}'

    def make_state(self) -> None:
        """Make the folder of local state; raises SettingError if this process must not write in it.

        A disk that is full is no wrong setting: processes wait until there is space.
        """
        reason = "it is read-only for this user"
        try:
            self.state.mkdir(parents=True, exist_ok=True)
            if os.access(self.state, os.W_OK | os.X_OK):
                return
        except OSError as error:
            reason = error.strerror or str(error)
        needs = f"a folder that can be written ({reason})"
        raise SettingError(LogVariables.variable("state"), str(self.state), needs)

    def topic(self, name: str) -> str:
        """Full name of the topic `name`, such as `headwater.events`."""
        return f"{self.environment}.{name}"


SHARED_FOLDER: Final = (
    "the absolute path of a folder that all machines share, or a URL that Spark reads, such as s3a://bucket/headwater"
)
_SCHEMES: Final = ("file", "s3a", "gs", "abfss")
"""Of URLs that both Spark and pyarrow read."""


def _check_checkpoints(value: str) -> str:
    url = urlsplit(value)
    if "://" not in value:
        if value and not Path(value).is_absolute():
            raise ValueError("each process would have another folder")
    elif url.scheme not in _SCHEMES or (url.scheme == "file") == bool(url.netloc) or url.query or url.fragment:
        raise ValueError("not a URL that is known")
    elif url.scheme == "file" and len(url.path) < 2:
        raise ValueError("a folder, and not the whole disk")
    return value


class LogVariables(Variables):
    """The variables of LogSettings."""

    never_empty: ClassVar[frozenset[str]] = frozenset({"environment"})

    environment: EnvironmentName = LogSettings.environment
    kafka: Brokers = LogSettings.bootstrap
    partitions: Count = LogSettings.partitions
    patch_partitions: Count = LogSettings.patch_partitions
    replication: Count = LogSettings.replication
    receipts_days: Days = LogSettings.receipts_days
    state: Path = Field(LogSettings.state, description="a folder that can be written")
    checkpoints: Annotated[str, AfterValidator(_check_checkpoints)] = Field("", description=SHARED_FOLDER)
    modules: str = ""


def accept_no_arguments(program: str, what: str | None, arguments: Sequence[str] | None) -> None:
    """Exit with help if `arguments` ask for it, and with an error for any other argument: settings are variables.

    program: the name in the help if arguments are given; for those of the process (None) it is as that was called.
    """
    epilog = "Settings are environment variables; docs/settings.md lists them."
    named = called_as() if arguments is None else None
    ArgumentParser(named or program, description=what, epilog=epilog).parse_args(arguments)
