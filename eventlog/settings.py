"""The address of the log and the names of this deployment, read once from the environment."""

from __future__ import annotations

import re
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eventlog.errors import SettingError
from eventlog.modules import DEFAULT_MODULES, read_modules
from eventlog.security import KafkaSecurity

ENVIRONMENT_NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")


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
    modules: what the deployment loads: shipped domains, and dotted names of the user's packages (`read_modules`).
    security: what Kafka's listener at `bootstrap` requires of its clients.
    """

    environment: str = "headwater"
    bootstrap: str = "127.0.0.1:19092"
    partitions: int = 4
    patch_partitions: int = 4
    replication: int = 1
    receipts_days: int = 7
    state: Path = Path(".headwater")
    modules: tuple[str, ...] = DEFAULT_MODULES
    security: KafkaSecurity = field(default_factory=KafkaSecurity)

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> LogSettings:
        """Read the `HEADWATER_*` variables of `env`; raises SettingError naming the wrong one, or AmbiguousModule."""
        environment = env.get("HEADWATER_ENVIRONMENT", cls.environment)
        if not ENVIRONMENT_NAME.fullmatch(environment):
            raise SettingError(
                "HEADWATER_ENVIRONMENT", environment, "a name of a-z, 0-9 and _ with at most 31 characters"
            )
        return cls(
            environment=environment,
            bootstrap=env.get("HEADWATER_KAFKA", cls.bootstrap),
            partitions=read_count(env, "HEADWATER_PARTITIONS", cls.partitions),
            patch_partitions=read_count(env, "HEADWATER_PATCH_PARTITIONS", cls.patch_partitions),
            replication=read_count(env, "HEADWATER_REPLICATION", cls.replication),
            receipts_days=read_count(env, "HEADWATER_RECEIPTS_DAYS", cls.receipts_days),
            state=Path(env.get("HEADWATER_STATE", str(cls.state))),
            modules=read_modules(env.get("HEADWATER_MODULES", "")),
            security=KafkaSecurity.from_environment(env),
        )

    def topic(self, name: str) -> str:
        """Full name of the topic `name`, such as `headwater.events`."""
        return f"{self.environment}.{name}"


def accept_no_arguments(program: str, what: str | None, arguments: Sequence[str]) -> None:
    """Exit with help if `arguments` ask for it, and with an error for any other argument: settings are variables."""
    epilog = "Settings are environment variables; docs/architecture.md lists them."
    ArgumentParser(program, description=what, epilog=epilog).parse_args(arguments)


def read_count(env: Mapping[str, str], variable: str, default: int) -> int:
    """A positive integer from `env`; raises SettingError naming `variable`."""
    value = env.get(variable, str(default))
    if not value.isascii() or not value.isdigit() or int(value) < 1:
        raise SettingError(variable, value, "an integer of at least 1")
    return int(value)
