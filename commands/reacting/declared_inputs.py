"""Which inputs of a process other versions of its code handle: what newer code handles waits for that code.

Each handler stores the inputs that its code declares, before it serves. The order in which these sets appear first is
the order of the versions, also if a handler with older code starts again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import orjson

from headwater.commands.declaring.process import AnyProcess
from headwater.commands.handling.refusals import REFUSED
from headwater.commands.reacting.starts import TIMEOUT_S
from headwater.eventlog import topics
from headwater.eventlog.ports import Entry, EventLog
from headwater.eventlog.times import now_ms

INPUTS: Final = "/@inputs"
"""End of the keys of these records of `process-starts`; no topic has this name."""

Removed = Mapping[str, frozenset[str]]
"""By process, the types of inputs that earlier versions of its code handled, and this one and later ones do not."""


def settle_inputs(log: EventLog, processes: Mapping[str, AnyProcess]) -> Removed:
    """Store what `processes` handle, and find what they do not handle any more. Raises EventLogError."""
    declared = {name: _declared(process) for name, process in processes.items()}
    versions = _versions(log)
    for name, inputs in declared.items():
        if inputs not in versions.get(name, ()):
            entry = Entry(topics.STARTS, name + INPUTS, orjson.dumps({"inputs": sorted(inputs)}), now_ms())
            log.submit(entry, 0).result(TIMEOUT_S)
    versions = _versions(log)
    return {name: _removed(inputs, versions[name]) for name, inputs in declared.items()}


def _declared(process: AnyProcess) -> frozenset[str]:
    return frozenset([*process.events, *process.rows, *([REFUSED] if process.sees_refusals else [])])


def _versions(log: EventLog) -> dict[str, list[frozenset[str]]]:
    """The sets of each process, in the order in which they appeared first."""
    found: dict[str, list[frozenset[str]]] = {}
    for record in log.read(topics.STARTS, 0, 0):
        if record.key.endswith(INPUTS) and record.value is not None:
            inputs = frozenset(orjson.loads(record.value)["inputs"])
            versions = found.setdefault(record.key.removesuffix(INPUTS), [])
            if inputs not in versions:
                versions.append(inputs)
    return found


def _removed(inputs: frozenset[str], versions: list[frozenset[str]]) -> frozenset[str]:
    at = versions.index(inputs)
    return frozenset().union(*versions[:at]) - frozenset().union(*versions[at:])
