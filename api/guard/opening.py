"""Opens the guard of an API from its settings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headwater.api.guard.guard import Guard
from headwater.api.guard.jwks import open_keys
from headwater.api.guard.keys import ApiKeys
from headwater.api.guard.limits import CallerLimits
from headwater.api.guard.roles import Roles
from headwater.api.guard.scopes import Declared
from headwater.api.guard.settings import KEYS, ROLES, GuardSettings
from headwater.api.guard.tokens import Tokens
from headwater.eventlog.errors import SettingError


def open_guard(settings: GuardSettings, declared: Declared) -> Guard:
    """Read the files and the issuer's keys; raises SettingError naming what is wrong, also scopes of nothing."""
    if not settings.knows_callers:
        return Guard()
    keys = None if settings.keys is None else ApiKeys(settings.keys)
    roles = Roles(settings.roles, settings.roles_claim)
    named: list[tuple[str, str, str, Sequence[str]]] = []
    if keys is not None:
        named += [(KEYS, str(settings.keys), f'key "{each.name}"', each.scopes) for each in keys.every().values()]
    named += [(ROLES, str(settings.roles), f'role "{role}"', scopes) for role, scopes in roles.every().items()]
    check_scopes(named, declared)
    tokens = None
    if settings.issuer:
        is_taken = keys.has_name if keys else _is_never_taken
        source = open_keys(settings.issuer, settings.jwks)
        tokens = Tokens(settings.issuer, settings.audience, source, roles, is_taken)
    limits = CallerLimits(settings.caller_per_second, settings.caller_at_once)
    return Guard(
        keys,
        tokens,
        has_public_documentation=settings.has_public_documentation,
        limits=limits,
        session_key=settings.session_key,
    )


def check_scopes(named: Iterable[tuple[str, str, str, Iterable[str]]], declared: Declared) -> None:
    """Refuse scopes that allow nothing; raises SettingError naming all of them.

    named: for each key or role: the variable of its file, the file, what it is called, and its scopes.
    """
    faults = [
        SettingError(variable, path, f"a file without this mistake: {who}: {problem}")
        for variable, path, who, scopes in named
        for scope in scopes
        if (problem := declared.problem(scope)) is not None
    ]
    if faults:
        raise SettingError.of(faults)


def _is_never_taken(_: str) -> bool:
    return False
