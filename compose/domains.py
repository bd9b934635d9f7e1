"""`python -m headwater.compose.domains DOMAINS`: checks the DOMAINS of `make` before it installs or starts anything."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Final

from headwater.compose.errors import DomainsError
from headwater.eventlog.programs.modules import VARIABLE, project_modules, read_modules, shipped_domains

SAMPLE: Final = ("listings",)
"""The sample of `make run` and `make demo` if nothing else is named."""


def read_domains(text: str) -> tuple[str, ...]:
    """The samples in a value of DOMAINS: "all", or names separated by commas; no domains if it is empty.

    Raises DomainsError if a name is not a sample.
    """
    shipped = shipped_domains()
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if names == ("all",):
        return shipped
    if not set(names) <= set(shipped):
        raise DomainsError(text, f"all, or to some of {', '.join(shipped)}, separated by commas")
    return names


def read_deployed(domains: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The modules that `make run` runs: the samples in DOMAINS, else HEADWATER_MODULES, else those of the project in
    the current folder, else SAMPLE.

    Raises DomainsError if DOMAINS is wrong or both are set, and what `read_modules` raises.
    """
    chosen, modules = read_domains(domains), environ.get(VARIABLE, "").strip()
    if chosen and modules:
        both = ",".join((modules, *chosen))
        raise DomainsError(domains, f"nothing, and set {VARIABLE} to '{both}'")
    return chosen or (read_modules(modules) if modules or project_modules() else SAMPLE)


def main(words: Sequence[str]) -> int:
    """Check `words`, a value of DOMAINS, without any installed package; returns the exit code."""
    try:
        read_domains(",".join(words))
    except DomainsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
