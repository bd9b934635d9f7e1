"""The settings of the API, read once from the environment: its address, its limits, and who may call it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field
from pydantic_settings import SettingsConfigDict

from headwater.api.limits import Limits
from headwater.api.tls import TlsFiles
from headwater.eventlog.errors import SettingError
from headwater.eventlog.programs.variables import Count, Port, Processes, Variables
from headwater.eventlog.settings import LogSettings
from headwater.projections.settings import StoreSettings

ANY: Final = "*"
LOCALHOST: Final = "localhost"
HOST: Final = "HEADWATER_API_HOST"
KEYS: Final = "HEADWATER_API_KEYS"
OPEN: Final = "HEADWATER_API_OPEN"
ISSUER: Final = "HEADWATER_API_ISSUER"
AUDIENCE: Final = "HEADWATER_API_AUDIENCE"
JWKS: Final = "HEADWATER_API_JWKS"
ROLES: Final = "HEADWATER_API_ROLES"
PER_SECOND: Final = "HEADWATER_API_CALLER_PER_SECOND"
AT_ONCE: Final = "HEADWATER_API_CALLER_AT_ONCE"
MAX_LIMIT: Final = 1_000_000
KEY_BEGINS: Final = "hw_"
"""Of every API key, so that people and scanners of secrets recognise one."""
HTTPS: Final = "an https:// URL, or http:// on this machine"
Limit = Annotated[int, Field(ge=0, le=MAX_LIMIT, description=f"an integer from 1 to {MAX_LIMIT}, or 0 for no limit")]
ACCESS_LOG: Final = "HEADWATER_API_ACCESS_LOG"
GRACE_S: Final = 10
"""How long running requests may take to end, after the process is asked to stop."""
CANNOT_START: Final = 2
"""Exit code for wrong settings or declarations, so that a restart does not help."""
_HOST: Final = r"(\*|(\*\.)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])"
_ORIGIN: Final = r"(\*|[A-Za-z][A-Za-z0-9+.-]*://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?)"


@dataclass(frozen=True)
class Hosts:
    """The hosts that a request may name.

    names: in lower case and without a port; `*.example.com` is every name below `example.com`, `*` is any host.
    addresses: whether it may be any IP address; else only one of this machine. A website cannot have an address as its
    name.
    """

    names: frozenset[str]
    addresses: bool

    @classmethod
    def of(cls, bound: str, allowed: Sequence[str]) -> Hosts:
        """Those of an API that listens on `bound`; allowed: by the setting.

        Names of this machine always belong to them. Without the setting, an API that only this machine can reach takes
        only these names, and another one any name.
        """
        loopback = is_loopback(bound.lower())
        if not (allowed or loopback):
            return ANY_HOST
        names = (host.lower() for host in (*allowed, bound))
        return cls(frozenset(str(_address(name) or name) for name in names), addresses=not loopback)

    @property
    def is_any(self) -> bool:
        """Whether it may be any host."""
        return ANY in self.names

    def has(self, name: str) -> bool:
        """Whether a request may name this host; name: in lower case, without a port."""
        if self.is_any or name in self.names or is_loopback(name):
            return True
        if (address := _address(name)) is not None:
            return self.addresses or str(address) in self.names
        parts = name.split(".")
        return any(".".join(("*", *parts[start:])) in self.names for start in range(1, len(parts)))


ANY_HOST: Final = Hosts(frozenset({ANY}), addresses=True)


def is_loopback(name: str) -> bool:
    """Whether a host, in lower case, is this machine, and only this machine reaches it."""
    address = _address(name)
    return name == LOCALHOST if address is None else address.is_loopback


def _address(name: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None


def url_problem(url: str) -> str | None:
    """Why a URL must not be trusted with keys; None if it may."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "it is not a URL"
    if not host or parts.username is not None or parts.fragment:
        return "it is not a URL with a host, and without a user"
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)):
        return None
    return "its keys could be exchanged on the way without https://"


def _check_url(value: str) -> str:
    if value and (problem := url_problem(value)):
        raise ValueError(problem)
    return value


def _check_is_file(value: Path | None) -> Path | None:
    if value is not None and str(value).startswith(KEY_BEGINS):
        raise ValueError("it is a key")
    return value


def _check_jwks(value: str) -> str:
    return _check_url(value) if "://" in value else value


class GuardSettings(Variables):
    """Who may call the API.

    keys: the file of API keys. issuer, audience: of tokens. jwks: a file or URL with the issuer's keys; empty: by
    discovery. roles: a file with the scopes of roles; roles_claim: the claim that has a token's roles. open: everybody
    may call it, from anywhere. public_docs: whether the documentation needs no caller. caller_per_second,
    caller_at_once: requests of one caller to each process; 0: no limit. session_key: signs the cookies of the console,
    in all processes of this machine if no other one has it.
    """

    model_config = SettingsConfigDict(env_prefix="HEADWATER_API_")

    keys: Annotated[Path | None, AfterValidator(_check_is_file)] = Field(
        None, description="the file of API keys, not a key"
    )
    issuer: Annotated[str, AfterValidator(_check_url)] = Field("", description=f"the issuer of tokens: {HTTPS}")
    audience: str = ""
    jwks: Annotated[str, AfterValidator(_check_jwks)] = Field("", description=f"a file, or {HTTPS}")
    roles: Path | None = None
    roles_claim: str = "roles"
    open: bool = Field(False, description="true or false")
    caller_per_second: Limit = 0
    caller_at_once: Limit = 0
    session_key: str = Field(
        default_factory=lambda: secrets.token_urlsafe(32),
        min_length=32,
        repr=False,
        description="at least 32 characters, such as those of `openssl rand -hex 32`",
    )
    public_docs: bool = Field(False, description="true or false")

    @property
    def knows_callers(self) -> bool:
        """Whether only known callers are answered."""
        return self.keys is not None or bool(self.issuer)

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> GuardSettings:
        """Read the `HEADWATER_*` variables of `env`; raises SettingError naming the one that is wrong, or missing."""
        made = cls.read(env)
        made._check()
        return made

    @classmethod
    def fault(cls, field: str, value: str) -> SettingError:
        """The error for a field whose variable has this value, which is not shown if it may be a key or a password."""
        return super().fault(field, "…" if "@" in value or KEY_BEGINS in value else value)

    def _check(self) -> None:
        """Refuse what does not belong together: whoever sets a variable expects that it protects something."""
        if self.open and self.knows_callers:
            needs = f"false, because {KEYS} or {ISSUER} is set: an API is either open or guarded"
            raise SettingError(OPEN, "true", needs)
        if not self.knows_callers:
            for variable, limit in ((PER_SECOND, self.caller_per_second), (AT_ONCE, self.caller_at_once)):
                if limit:
                    needs = f"0, or set {KEYS} or {ISSUER} too: without them, callers are not known"
                    raise SettingError(variable, str(limit), needs)
        if self.issuer and not self.audience:
            raise SettingError(AUDIENCE, "", f"the audience of tokens for this API, because {ISSUER} is set")
        if not self.issuer:
            alone = {AUDIENCE: self.audience, JWKS: self.jwks, ROLES: str(self.roles or "")}
            for variable, value in alone.items():
                if value:
                    raise SettingError(
                        variable, value, f"nothing, or set {ISSUER} too: without it no token is accepted"
                    )

    def check_host(self, host: str, *, is_loopback: bool) -> None:
        """Refuse an address that others can reach although everybody would be answered; raises SettingError."""
        if not (is_loopback or self.knows_callers or self.open):
            needs = (
                "a loopback address such as 127.0.0.1, because everybody who reaches the API could read and change "
                f"everything; or set {KEYS} or {ISSUER}, so that callers are known; or {OPEN}=true, if a proxy in "
                "front of it knows them"
            )
            raise SettingError(HOST, host, needs)


class ServerSettings(Variables):
    """How the API is reached, and by how many processes it is served.

    allowed_hosts: names that requests may use in addition to those of this machine, see `Hosts`. access_log: whether
    each request is logged. origins: of websites that may read the answers in a browser. instance: what
    `GET /health/ready` answers as `instance`; empty: a random id. certificate, private_key: PEM files; empty: it
    answers without encryption.
    """

    model_config = SettingsConfigDict(env_prefix="HEADWATER_API_")

    host: str = "127.0.0.1"
    port: Port = 18080
    workers: Processes = 1
    access_log: bool = Field(False, description="true or false")
    allowed_hosts: str = Field(
        "",
        pattern=rf"^$|^{_HOST}(\s*,\s*{_HOST})*$",
        description="names without a port, separated by commas, such as api.example.com,*.example.com; * for any",
    )
    origins: str = Field(
        "",
        pattern=rf"^$|^{_ORIGIN}(\s*,\s*{_ORIGIN})*$",
        description="origins separated by commas, such as https://shop.example.com; * for any",
    )
    instance: str = ""
    certificate: str = ""
    private_key: str = ""


class LimitSettings(Variables):
    """The limits of requests that have variables."""

    body_limit_bytes: Count = Limits.body_bytes
    body_limit_values: Count = Limits.body_values
    answer_timeout_s: Count = int(Limits.answer_timeout_s)


@dataclass(frozen=True)
class ApiSettings:
    """The API of one machine. guard: who may call. tls: its certificate; None: it answers without encryption."""

    log: LogSettings = field(default_factory=LogSettings)
    stores: StoreSettings = field(default_factory=StoreSettings)
    server: ServerSettings = field(default_factory=ServerSettings)
    limits: Limits = field(default_factory=Limits)
    guard: GuardSettings = field(default_factory=GuardSettings)
    tls: TlsFiles | None = None

    @property
    def hosts(self) -> Hosts:
        """The hosts that requests may name."""
        return Hosts.of(self.server.host, read_list(self.server.allowed_hosts))

    @property
    def origins(self) -> tuple[str, ...]:
        """Those that browsers send, so without the default port of a scheme."""
        origins = []
        for origin in read_list(self.server.origins):
            scheme, _, _ = origin.partition("://")
            origins.append(origin.removesuffix({"http": ":80", "https": ":443"}.get(scheme, "/")))
        return tuple(origins)

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> ApiSettings:
        """Read the `HEADWATER_*` variables of `env`; raises SettingError naming the wrong ones."""
        server, limits, guard = ServerSettings.read(env), LimitSettings.read(env), GuardSettings.from_environment(env)
        guard.check_host(server.host, is_loopback=is_loopback(server.host.lower()))
        return cls(
            LogSettings.from_environment(env),
            StoreSettings.from_environment(env),
            server,
            Limits(
                body_bytes=limits.body_limit_bytes,
                body_values=limits.body_limit_values,
                answer_timeout_s=float(limits.answer_timeout_s),
            ),
            guard,
            TlsFiles.of(server.certificate, server.private_key),
        )


def read_list(text: str) -> tuple[str, ...]:
    """The items between commas, in lower case."""
    return tuple(item.strip().lower() for item in text.split(",") if item.strip())
