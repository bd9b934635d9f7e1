"""The traffic of the shipped samples, and what to try with them, found by their names."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from headwater.compose.samples.sample import Sample
from headwater.eventlog.programs.modules import SAMPLES


def sample_of(domain: str) -> Sample:
    """A new sample by its name: `sample()` of its module `traffic`."""
    found: Sample = import_module(f"{SAMPLES}.{domain}.traffic").sample()
    return found


def to_try(domain: str) -> Sequence[tuple[str, str]]:
    """What can be tried with a sample, and the command for it: `TO_TRY` of its module `to_try`."""
    found: Sequence[tuple[str, str]] = import_module(f"{SAMPLES}.{domain}.to_try").TO_TRY
    return found


def create_captured(server: str) -> None:
    """Create the database that the sample `shop` captures, if it does not exist.

    server: libpq URL of a role that may create roles and databases. Raises psycopg.Error if the server refuses.
    """
    import_module(f"{SAMPLES}.shop.database").create_shop(server)
