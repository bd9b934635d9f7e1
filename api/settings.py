"""The address and limits of the API, read once from the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final

from pydantic import Field

from headwater.api.guard.settings import GuardSettings
from headwater.api.hosts import Hosts, is_loopback
from headwater.api.limits.requests import Limits
from headwater.api.tls import TlsFiles
from headwater.eventlog.programs.variables import Count, Port, Processes, Variables
from headwater.eventlog.settings import LogSettings
from headwater.projections.settings import StoreSettings

ACCESS_LOG: Final = "HEADWATER_API_ACCESS_LOG"
GRACE_S: Final = 10
"""How long running requests may take to end, after the process is asked to stop."""
CANNOT_START: Final = 2
"""Exit code for wrong settings or declarations, so that a restart does not help."""
_HOST: Final = r"(\*|(\*\.)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])"
_ORIGIN: Final = r"(\*|[A-Za-z][A-Za-z0-9+.-]*://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?)"


@dataclass(frozen=True)
class ApiSettings:
    """The API of one machine: address, number of processes that serve it, log, stores and limits of each.

    access_log: whether each request is logged. allowed_hosts: names that requests may use in addition to those of this
    machine, see `Hosts`. origins: of websites that may read the answers in a browser, `*` for all. instance: what
    `GET /health/ready` answers as `instance`; empty: a random id. guard: who may call. tls: its certificate; None: it
    answers without encryption.
    """

    log: LogSettings = field(default_factory=LogSettings)
    host: str = "127.0.0.1"
    port: int = 18080
    workers: int = 1
    stores: StoreSettings = field(default_factory=StoreSettings)
    limits: Limits = field(default_factory=Limits)
    access_log: bool = False
    allowed_hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    instance: str = ""
    guard: GuardSettings = field(default_factory=GuardSettings)
    tls: TlsFiles | None = None

    @property
    def hosts(self) -> Hosts:
        """The hosts that requests may name."""
        return Hosts.of(self.host, self.allowed_hosts)

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> ApiSettings:
        """Read the `HEADWATER_*` variables of `env`; raises SettingError naming the wrong ones."""
        given, guard = ApiVariables.read(env), GuardSettings.from_environment(env)
        guard.check_host(given.api_host, is_loopback=is_loopback(given.api_host.lower()))
        return cls(
            log=LogSettings.from_environment(env),
            host=given.api_host,
            port=given.api_port,
            workers=given.api_workers,
            stores=StoreSettings.from_environment(env),
            limits=Limits(
                body_bytes=given.body_limit_bytes,
                body_values=given.body_limit_values,
                answer_timeout_s=float(given.answer_timeout_s),
            ),
            access_log=given.api_access_log,
            allowed_hosts=read_list(given.api_allowed_hosts),
            origins=tuple(_without_port(each) for each in read_list(given.api_origins)),
            instance=given.api_instance,
            guard=guard,
            tls=TlsFiles.from_environment(env),
        )


def read_list(text: str) -> tuple[str, ...]:
    """The items between commas, in lower case."""
    return tuple(each.strip().lower() for each in text.split(",") if each.strip())


def _without_port(origin: str) -> str:
    """An origin as browsers send it: without the default port."""
    for scheme, port in (("http://", ":80"), ("https://", ":443")):
        if origin.startswith(scheme):
            return origin.removesuffix(port)
    return origin


class ApiVariables(Variables):
    """The variables of ApiSettings beside those of the log and the stores."""

    api_host: str = ApiSettings.host
    api_port: Port = ApiSettings.port
    api_workers: Processes = ApiSettings.workers
    api_access_log: bool = Field(ApiSettings.access_log, description="true or false")
    api_allowed_hosts: Annotated[
        str,
        Field(
            pattern=rf"^$|^{_HOST}(\s*,\s*{_HOST})*$",
            description="names without a port, separated by commas, such as api.example.com,*.example.com; * for any",
        ),
    ] = ""
    api_origins: Annotated[
        str,
        Field(
            pattern=rf"^$|^{_ORIGIN}(\s*,\s*{_ORIGIN})*$",
            description="origins separated by commas, such as https://shop.example.com; * for any",
        ),
    ] = ""
    api_instance: str = ApiSettings.instance
    body_limit_bytes: Count = Limits.body_bytes
    body_limit_values: Count = Limits.body_values
    answer_timeout_s: Count = int(Limits.answer_timeout_s)
