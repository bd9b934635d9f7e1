"""The addresses of the stores, read once from the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from pydantic import Field

from eventlog.settings import LogSettings
from eventlog.variables import Count, EnvironmentName, Variables


@dataclass(frozen=True)
class StoreSettings:
    """The addresses of the stores, and the environment whose views they hold.

    The addresses may have passwords, so they are not in its text.

    patch_partitions: of `patches`; each has a ledger in every generation.
    loaders: processes per store; they share the partitions of `patches`, also with those of other machines.
    log: has the topics of views.
    """

    environment: str = "headwater"
    postgres: str = field(default="postgresql://headwater@127.0.0.1:15432/headwater", repr=False)
    elasticsearch: str = field(default="http://127.0.0.1:19200", repr=False)
    valkey: str = field(default="valkey://127.0.0.1:16379", repr=False)
    patch_partitions: int = LogSettings.patch_partitions
    loaders: int = 1
    log: LogSettings = field(default_factory=LogSettings)

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> StoreSettings:
        """Read the `HEADWATER_*` variables of `env`; raises SettingError naming the wrong ones, or AmbiguousModule."""
        return cls(**StoreVariables.read(env).model_dump(), log=LogSettings.from_environment(env))


class StoreVariables(Variables):
    """The variables of StoreSettings."""

    never_empty: ClassVar[frozenset[str]] = frozenset({"environment"})

    environment: EnvironmentName = StoreSettings.environment
    postgres: str = Field(StoreSettings.postgres, repr=False)
    elasticsearch: str = Field(
        StoreSettings.elasticsearch,
        pattern="^https?://",
        repr=False,
        description="the address of Elasticsearch, such as http://127.0.0.1:9200",
    )
    valkey: str = Field(
        StoreSettings.valkey,
        pattern="^(valkeys?|rediss?|unix)://",
        repr=False,
        description="the address of Valkey, such as valkey://127.0.0.1:6379",
    )
    patch_partitions: Count = StoreSettings.patch_partitions
    loaders: Count = StoreSettings.loaders
