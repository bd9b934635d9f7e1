"""The vault of this process. It imports nothing of cryptography: a deployment without personal fields needs none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headwater.eventlog.errors import SettingError
from headwater.eventlog.personal.identity import KeyRecords
from headwater.eventlog.personal.ports import KEYS_VARIABLE, NEEDS
from headwater.eventlog.programs.command_line import refuse_missing

if TYPE_CHECKING:
    from headwater.eventlog.personal.vault import Vault

_installed: list[Vault] = []
_opening: list[Callable[[], Vault]] = []
"""How a program opens its vault if it needs one; the last one counts."""
_opened: dict[Callable[[], Vault], Vault] = {}
"""Which of them have opened one."""


def installed() -> Vault:
    """The vault of this process; raises SettingError if there is none, and KeysUnavailable if it cannot be opened."""
    if not _installed:
        if not _opening:
            raise SettingError(KEYS_VARIABLE, "", NEEDS)
        open_ = _opening[-1]
        install(vault := open_())
        _opened[open_] = vault
    return _installed[-1]


def is_installed() -> bool:
    """Whether this process has a vault."""
    return bool(_installed)


def is_prepared() -> bool:
    """Whether `installed` gives one, or opens one."""
    return bool(_installed or _opening)


def install(vault: Vault) -> None:
    """Make it the vault of this process, until `uninstall`."""
    _installed.append(vault)


def uninstall(vault: Vault) -> None:
    """Undo `install`, and close the vault."""
    _installed.remove(vault)
    vault.close()


def install_when_needed(open_: Callable[[], Vault]) -> Callable[[], None]:
    """Let `installed` open the vault, for a program that may need none; returns what undoes it at the program's end."""
    _opening.append(open_)

    def undo() -> None:
        _opening.remove(open_)
        if (vault := _opened.pop(open_, None)) is not None:
            uninstall(vault)

    return undo


def in_memory() -> Vault:
    """A vault whose keys are in memory, for tests."""
    refuse_missing("a test with personal fields", "personal", "cryptography")
    from headwater.eventlog.personal.memory import MemoryKeys  # noqa: PLC0415 - only if something is personal
    from headwater.eventlog.personal.vault import Vault  # noqa: PLC0415 - likewise

    return Vault(MemoryKeys())


def opened_from(
    env: Mapping[str, str], environment: str, records: KeyRecords | None = None, *, pins: bool = True
) -> Vault:
    """The vault that the environment describes; raises SettingError or KeysUnavailable.

    records: what the log says of the store of keys. pins: whether the store is compared with that; a worker process,
    which is told the address by one that has compared it, only asks for keys that the store does not have.
    """
    refuse_missing("a deployment with personal fields", "personal", "cryptography", "psycopg", "psycopg_pool")
    from headwater.eventlog.personal.postgres import open_keys  # noqa: PLC0415 - it imports cryptography and psycopg
    from headwater.eventlog.personal.vault import Vault  # noqa: PLC0415 - likewise

    return Vault(open_keys(env, environment, records, pins=pins))


@contextmanager
def vault_of(env: Mapping[str, str], environment: str, records: KeyRecords, *, needed: bool) -> Iterator[None]:
    """The vault of a program while it runs; none if no field is personal. Raises SettingError or KeysUnavailable."""
    if not needed:
        yield
        return
    vault = opened_from(env, environment, records)
    install(vault)
    try:
        yield
    finally:
        uninstall(vault)
