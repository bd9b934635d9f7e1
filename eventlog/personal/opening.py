"""Opens the vault that the environment describes."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.eventlog.errors import SettingError
from headwater.eventlog.personal.master_keys import MasterKeys
from headwater.eventlog.personal.ports import KEYS_VARIABLE, NEEDS
from headwater.eventlog.personal.postgres import PostgresKeys
from headwater.eventlog.personal.vault import Vault
from headwater.eventlog.programs.variables import secret


def open_keys(env: Mapping[str, str], environment: str) -> PostgresKeys:
    """The store of keys at HEADWATER_KEYS, to which nothing connects before it is used; raises SettingError."""
    url = secret(env, KEYS_VARIABLE)
    if not url:
        raise SettingError(KEYS_VARIABLE, "", NEEDS)
    if not url.startswith(("postgresql://", "postgres://")):
        raise SettingError(KEYS_VARIABLE, "…", NEEDS)
    return PostgresKeys(url, environment, MasterKeys.from_environment(env))


def open_vault(env: Mapping[str, str], environment: str) -> Vault:
    """The vault over this store; raises likewise."""
    return Vault(open_keys(env, environment))
