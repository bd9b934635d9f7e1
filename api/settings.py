"""The address and limits of the API, read once from the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from eventlog.errors import SettingError
from eventlog.settings import LogSettings, read_count
from projections.settings import StoreSettings

ACCESS_LOG: Final = "HEADWATER_API_ACCESS_LOG"
GRACE_S: Final = 10
"""How long running requests may take to end, after the process is asked to stop."""
CANNOT_START: Final = 2
"""Exit code for wrong settings or declarations, so that a restart does not help."""


@dataclass(frozen=True)
class Limits:
    """The limits of requests.

    body_bytes: of a body, or of a line of NDJSON. in_flight: lines of one request that are in progress at once.
    in_flight_in_all: commands of all such requests that wait for their receipts; more would only wait in the log.
    stall_s: how long a client may read nothing of a streamed answer. heartbeat_s: time between comments to a follower.
    followers: clients that follow changes at once.
    """

    body_bytes: int = 512 * 1024
    answer_timeout_s: float = 10.0
    wait_ms: int = 5_000
    max_wait_ms: int = 30_000
    in_flight: int = 1_000
    in_flight_in_all: int = 4_000
    stall_s: float = 30.0
    heartbeat_s: float = 15.0
    followers: int = 1_000


@dataclass(frozen=True)
class ApiSettings:
    """The API of one machine: address, number of processes that serve it, log, stores and limits of each.

    access_log: whether each request is logged.
    """

    log: LogSettings = field(default_factory=LogSettings)
    host: str = "127.0.0.1"
    port: int = 18080
    workers: int = 1
    stores: StoreSettings = field(default_factory=StoreSettings)
    limits: Limits = field(default_factory=Limits)
    access_log: bool = False

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> ApiSettings:
        """Read the `HEADWATER_*` variables of `env`; raises SettingError naming the wrong one."""
        access_log = env.get(ACCESS_LOG) or "false"
        if access_log not in ("true", "false"):
            raise SettingError(ACCESS_LOG, access_log, "true or false")
        return cls(
            log=LogSettings.from_environment(env),
            host=env.get("HEADWATER_API_HOST", cls.host),
            port=read_count(env, "HEADWATER_API_PORT", cls.port),
            workers=read_count(env, "HEADWATER_API_WORKERS", cls.workers),
            stores=StoreSettings.from_environment(env),
            limits=Limits(
                body_bytes=read_count(env, "HEADWATER_BODY_LIMIT_BYTES", Limits.body_bytes),
                answer_timeout_s=float(read_count(env, "HEADWATER_ANSWER_TIMEOUT_S", int(Limits.answer_timeout_s))),
            ),
            access_log=access_log == "true",
        )
