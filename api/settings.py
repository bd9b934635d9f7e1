"""Where the API listens and what it reads, read once from the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eventlog.settings import LogSettings, read_count
from projections.settings import StoreSettings


@dataclass(frozen=True)
class Limits:
    """What one request may ask for.

    body_bytes: of a body, or of a line of NDJSON. in_flight: lines of one request that are at work at once.
    stall_s: how long a client may read nothing of an answer that is streamed. heartbeat_s: how often one who follows
    changes hears something. followers: clients who follow changes at once.
    """

    body_bytes: int = 512 * 1024
    answer_timeout_s: float = 10.0
    wait_ms: int = 5_000
    longest_wait_ms: int = 30_000
    in_flight: int = 1_000
    stall_s: float = 30.0
    heartbeat_s: float = 15.0
    followers: int = 1_000


@dataclass(frozen=True)
class ApiSettings:
    """One API process: address, log, stores and limits."""

    log: LogSettings = field(default_factory=LogSettings)
    host: str = "127.0.0.1"
    port: int = 18080
    stores: StoreSettings = field(default_factory=StoreSettings)
    limits: Limits = field(default_factory=Limits)

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> ApiSettings:
        """Read the `HEADWATER_*` variables of `env`; raises SettingError naming the wrong one."""
        return cls(
            log=LogSettings.from_environment(env),
            host=env.get("HEADWATER_API_HOST", cls.host),
            port=read_count(env, "HEADWATER_API_PORT", cls.port),
            stores=StoreSettings.from_environment(env),
            limits=Limits(
                body_bytes=read_count(env, "HEADWATER_BODY_LIMIT_BYTES", Limits.body_bytes),
                answer_timeout_s=float(read_count(env, "HEADWATER_ANSWER_TIMEOUT_S", int(Limits.answer_timeout_s))),
            ),
        )
