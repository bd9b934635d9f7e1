"""`python -m tests.bench [NAME…]`: run all benches, or those of these names.

Standard output gets one JSON line per measurement, standard error the same in plain words. A bench module declares
NAMES and a function `run(name)` that yields one mapping a line. Servers that run at the configured addresses are used;
without them, the benches start their own.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import signal
import sys
from types import ModuleType

import orjson

import tests.bench
from headwater.projections.spark.setup.jars import JarError
from headwater.projections.spark.setup.java import JavaError
from headwater.projections.supervision.process import SupervisionError
from tests.bench._machine import machine
from tests.bench._report import conditions, result
from tests.bench._servers import NotThere, servers


def benches() -> dict[str, ModuleType]:
    """By name, the module that measures it."""
    modules = [
        importlib.import_module(f"tests.bench.{info.name}")
        for info in pkgutil.iter_modules(tests.bench.__path__)
        if not info.name.startswith("_")
    ]
    return {name: module for module in modules for name in getattr(module, "NAMES", ())}


def main(arguments: list[str]) -> int:
    """Measure; returns the exit code: 1 where there are no servers, 2 where there is no such bench."""
    known = benches()
    listed = "\n".join(f"  {name}" for name in sorted(known))
    parser = argparse.ArgumentParser(
        "python -m tests.bench",
        description="Run all benches, or those of these names.",
        epilog=listed,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    wanted = parser.parse_args(arguments).names
    unknown = [name for name in wanted if name not in known]
    if unknown:
        print(f'there is no bench "{unknown[0]}"; there are:\n{listed}', file=sys.stderr)
        return 2
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = "127.0.0.1"  # what is measured is on this machine
    os.environ.setdefault("HEADWATER_MODULES", "listings")  # what is measured, unless a bench names its own
    try:
        with servers() as stack:
            for name in wanted or known:
                measure(name, known[name], stack)
    except (NotThere, SupervisionError, JarError, JavaError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def measure(name: str, bench: ModuleType, stack: str) -> None:
    """Run one bench, and tell what it found and on what."""
    found = machine(stack)
    print(f"\n{name}\n{conditions(found)}", file=sys.stderr, flush=True)
    for line in bench.run(name):
        print(orjson.dumps({"bench": name, **line, "machine": found}).decode(), flush=True)
        print(result(name, line), file=sys.stderr, flush=True)


if __name__ == "__main__":
    # as Ctrl-C: what was started is stopped
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    sys.exit(main(sys.argv[1:]))
