"""`python -m compose.domains DOMAINS`: refuses a wrong DOMAINS of `make` before anything is installed or started."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from compose.errors import SettingError
from eventlog.modules import read_modules, shipped_domains


def read_domains(text: str) -> tuple[str, ...]:
    """The shipped domains in a value of DOMAINS: "all", or names separated by commas; none if it names none.

    Raises SettingError if it names another.
    """
    shipped = tuple(shipped_domains())
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if names == ("all",):
        return shipped
    if not set(names) <= set(shipped):
        raise SettingError("DOMAINS", text, f"all, or to some of {', '.join(shipped)}, separated by commas")
    return names


def read_deployed(domains: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """What `make run` runs: the shipped domains that DOMAINS names, else what HEADWATER_MODULES does (`read_modules`).

    Raises SettingError if DOMAINS is wrong, or both are set.
    """
    chosen, modules = read_domains(domains), environ.get("HEADWATER_MODULES", "").strip()
    if chosen and modules:
        both = ",".join((modules, *chosen))
        raise SettingError("DOMAINS", domains, f"nothing, and HEADWATER_MODULES to '{both}'")
    return chosen or read_modules(modules)


def main(words: Sequence[str]) -> int:
    """Returns the exit code. words: a value of DOMAINS. Needs nothing that is installed."""
    try:
        read_domains(",".join(words))
    except SettingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
