"""Where the stores are, read once from the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class StoreSettings:
    """The addresses of the three stores, and the environment whose views they hold."""

    environment: str = "headwater"
    postgres: str = "postgresql://headwater@127.0.0.1:15432/headwater"
    elasticsearch: str = "http://127.0.0.1:19200"
    valkey: str = "valkey://127.0.0.1:16379"

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> StoreSettings:
        """Read the `HEADWATER_*` variables of `env`; the environment's name is checked by LogSettings."""
        return cls(
            environment=env.get("HEADWATER_ENVIRONMENT", cls.environment),
            postgres=env.get("HEADWATER_POSTGRES", cls.postgres),
            elasticsearch=env.get("HEADWATER_ELASTICSEARCH", cls.elasticsearch),
            valkey=env.get("HEADWATER_VALKEY", cls.valkey),
        )
