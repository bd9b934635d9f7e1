"""A vault of this process whose keys are in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headwater.eventlog.personal.installed import install, uninstall
from headwater.eventlog.personal.memory import MemoryKeys
from headwater.eventlog.personal.vault import Vault


class Steps:
    """A clock of which every look is a second later, so that no key is used without asking what was erased."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


@contextmanager
def memory_vault() -> Iterator[MemoryKeys]:
    """Install a vault without a lease; yields its keys."""
    keys = MemoryKeys()
    vault = Vault(keys, clock=Steps())
    install(vault)
    try:
        yield keys
    finally:
        uninstall(vault)
