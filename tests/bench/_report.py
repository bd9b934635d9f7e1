"""What was measured, in plain words."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

WIDTH = 100


def conditions(found: Mapping[str, Any]) -> str:
    """Two lines on the machine: see `machine`."""
    others = ", ".join(f"{name} {cores:.2f} cores" for name, cores in found["others"].items())
    return (
        f"{found['cores']} cores, {found['memory_gb']} GB, Python {found['python']}, commit {found['commit'] or '?'}, "
        f"servers: {found['stack']}, ten million additions take {found['loop_s']} s\n"
        f"load average {found['load'][0]:.2f} ({found['load'][1]:.2f} over 5 minutes); beside it: {others or 'nothing'}"
    )


def result(name: str, line: Mapping[str, Any]) -> str:
    """The value, what bounds it where that was measured, all rounds, and under which conditions."""
    value, unit = line.get("value"), line.get("unit", "")
    parts = [f"{_number(value)} {unit}".strip()]
    if "p99_ms" in line:
        parts.append(f"{_number(line['p99_ms'])} ms (p99)")
    if "floor" in line:
        parts.append(f"by hand {_number(line['floor'])} {unit}, ratio {line.get('ratio')}")
    if len(line.get("all", ())) > 1:
        parts.append(f"median of {', '.join(map(_number, line['all']))}")
    told = textwrap.wrap(str(line.get("conditions", "")), WIDTH, initial_indent="    ", subsequent_indent="    ")
    return "\n".join([f"{name}: {'; '.join(parts)}", *told])


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)
