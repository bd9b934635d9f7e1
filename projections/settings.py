"""The addresses of the stores, read once from the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eventlog.settings import LogSettings, read_count


@dataclass(frozen=True)
class StoreSettings:
    """The addresses of the three stores, and the environment whose views they hold.

    patch_partitions: of `patches`; each has a ledger in every generation. loaders: processes per store; they share the
    partitions of `patches`, also with those of other machines.
    """

    environment: str = "headwater"
    postgres: str = "postgresql://headwater@127.0.0.1:15432/headwater"
    elasticsearch: str = "http://127.0.0.1:19200"
    valkey: str = "valkey://127.0.0.1:16379"
    patch_partitions: int = LogSettings.patch_partitions
    loaders: int = 1

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> StoreSettings:
        """Read the `HEADWATER_*` variables of `env`; LogSettings checks the name of the environment."""
        return cls(
            environment=env.get("HEADWATER_ENVIRONMENT", cls.environment),
            postgres=env.get("HEADWATER_POSTGRES", cls.postgres),
            elasticsearch=env.get("HEADWATER_ELASTICSEARCH", cls.elasticsearch),
            valkey=env.get("HEADWATER_VALKEY", cls.valkey),
            patch_partitions=read_count(env, "HEADWATER_PATCH_PARTITIONS", cls.patch_partitions),
            loaders=read_count(env, "HEADWATER_LOADERS", cls.loaders),
        )
