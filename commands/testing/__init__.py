"""Tests of aggregates and processes, for `headwater.testing`: given, when, then, run by the production code.

May import all of `commands`. Only `contracts` needs the extra `testing` (pytest and hypothesis).
"""

from headwater.eventlog.personal.installed import in_memory, install_when_needed

install_when_needed(in_memory)  # only if something is personal, and no program has installed the deployment's keys
