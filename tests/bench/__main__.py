"""`python -m tests.bench [NAME]`: run all benches, or the one of that name, and print their JSON lines.

A bench module declares NAMES and a function `run(name)` that yields one mapping a line.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys

import orjson

import tests.bench


def main(wanted: list[str]) -> int:
    modules = [
        importlib.import_module(f"tests.bench.{info.name}")
        for info in pkgutil.iter_modules(tests.bench.__path__)
        if not info.name.startswith("_")
    ]
    benches = {name: module for module in modules for name in getattr(module, "NAMES", ())}
    unknown = [name for name in wanted if name not in benches]
    if unknown:
        print(f'no bench "{unknown[0]}": use one of {", ".join(sorted(benches))}', file=sys.stderr)
        return 2
    for name in wanted or benches:
        for line in benches[name].run(name):
            print(orjson.dumps({"bench": name, **line}).decode(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
