"""The settings that say who may call the API, read once from the environment."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from headwater.api.hosts import is_loopback
from headwater.eventlog.errors import SettingError
from headwater.eventlog.programs.variables import Variables

if TYPE_CHECKING:
    from headwater.api.guard.guard import Guard
    from headwater.api.guard.scopes import Declared

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

    def open_guard(self, declared: Declared) -> Guard:
        """Read the files and the issuer's keys; raises SettingError naming what is wrong, also scopes of nothing."""
        from headwater.api.guard.guard import open_guard  # noqa: PLC0415 - the process that watches over workers needs none of it

        return open_guard(self, declared)


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


Limit = Annotated[int, Field(ge=0, le=MAX_LIMIT, description=f"an integer from 1 to {MAX_LIMIT}, or 0 for no limit")]


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
