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
        names = (each.lower() for each in (*allowed, bound))
        return cls(frozenset(str(_address(each) or each) for each in names), addresses=not loopback)

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


@dataclass(frozen=True)
class GuardSettings:
    """Who may call the API.

    keys: the file of API keys. issuer, audience: of tokens. jwks: a file or URL with the issuer's keys; empty: by
    discovery. roles: a file with the scopes of roles; roles_claim: the claim that has a token's roles. is_open:
    everybody may call it, from anywhere. has_public_documentation: whether the documentation needs no caller.
    caller_per_second, caller_at_once: requests of one caller to each process; 0: no limit. session_key: signs the
    cookies of the console, in all processes of this machine if no other one has it.
    """

    keys: Path | None = None
    issuer: str = ""
    audience: str = ""
    jwks: str = ""
    roles: Path | None = None
    roles_claim: str = "roles"
    is_open: bool = False
    has_public_documentation: bool = False
    caller_per_second: int = 0
    caller_at_once: int = 0
    session_key: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False, compare=False)

    @property
    def knows_callers(self) -> bool:
        """Whether only known callers are answered."""
        return self.keys is not None or bool(self.issuer)

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> GuardSettings:
        """Read the `HEADWATER_*` variables of `env`; raises SettingError naming the one that is wrong, or missing."""
        given = GuardVariables.read(env)
        made = cls(
            keys=Path(given.api_keys) if given.api_keys else None,
            issuer=given.api_issuer,
            audience=given.api_audience,
            jwks=given.api_jwks,
            roles=Path(given.api_roles) if given.api_roles else None,
            roles_claim=given.api_roles_claim,
            is_open=given.api_open,
            has_public_documentation=given.api_public_docs,
            caller_per_second=given.api_caller_per_second,
            caller_at_once=given.api_caller_at_once,
            **({"session_key": given.api_session_key} if given.api_session_key else {}),
        )
        made._check()
        return made

    def _check(self) -> None:
        """Refuse what does not belong together: whoever sets a variable expects that it protects something."""
        if self.is_open and self.knows_callers:
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
        if not (is_loopback or self.knows_callers or self.is_open):
            needs = (
                "a loopback address such as 127.0.0.1, because everybody who reaches the API could read and change "
                f"everything; or set {KEYS} or {ISSUER}, so that callers are known; or {OPEN}=true, if a proxy in "
                "front of it knows them"
            )
            raise SettingError(HOST, host, needs)


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


def _check_is_file(value: str) -> str:
    if value.startswith(KEY_BEGINS):
        raise ValueError("it is a key")
    return value


def _check_jwks(value: str) -> str:
    return _check_url(value) if "://" in value else value


class GuardVariables(Variables):
    """The variables of GuardSettings."""

    @classmethod
    def fault(cls, field: str, value: str) -> SettingError:
        """The error for a field whose variable has this value, which is not shown if it may be a key or a password."""
        return super().fault(field, "…" if "@" in value or KEY_BEGINS in value else value)

    api_keys: Annotated[str, AfterValidator(_check_is_file)] = Field("", description="the file of API keys, not a key")
    api_issuer: Annotated[str, AfterValidator(_check_url)] = Field("", description=f"the issuer of tokens: {HTTPS}")
    api_audience: str = ""
    api_jwks: Annotated[str, AfterValidator(_check_jwks)] = Field("", description=f"a file, or {HTTPS}")
    api_roles: str = ""
    api_roles_claim: str = GuardSettings.roles_claim
    api_open: bool = Field(GuardSettings.is_open, description="true or false")
    api_caller_per_second: Limit = GuardSettings.caller_per_second
    api_caller_at_once: Limit = GuardSettings.caller_at_once
    api_session_key: str = Field(
        "",
        pattern=r"^$|^.{32,}$",
        repr=False,
        description="at least 32 characters, such as those of `openssl rand -hex 32`",
    )
    api_public_docs: bool = Field(GuardSettings.has_public_documentation, description="true or false")


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
