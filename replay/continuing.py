"""`replay continue-processes`: let processes go on after `events` has lost records that they were sent."""

from __future__ import annotations

import os
from contextlib import closing

from headwater.commands.reacting.starts import continue_at_end, lost_events
from headwater.eventlog.kafka.log import KafkaLog
from headwater.eventlog.settings import LogSettings
from headwater.replay.output import AsJson, confirm, errors, one_line, print_json, say
from headwater.replay.prune import Yes


def continue_processes(yes: Yes = False, as_json: AsJson = False) -> None:
    """Let processes go on with new events where `events` has lost records that they were sent, or is another topic.

    Their handlers log "processes have been sent its events up to offset", and route nothing meanwhile. Events that are
    in such a partition now and were not sent yet are passed over: processes go on with those that come from now on.
    Partitions that have lost nothing go on where they are.

    It asks for confirmation, and can be repeated.
    """
    settings = LogSettings.from_environment(os.environ)
    with closing(KafkaLog(settings)) as log:
        lost = lost_events(log)
        if lost and not yes:
            for partition, reason in lost.items():
                errors().print(one_line(f'partition {partition} of "events" {reason}'), soft_wrap=True)
            confirm("Continue at their ends?", "changed")
        continued = continue_at_end(log) if lost else {}
    if as_json:
        print_json({"continued": {str(partition): offset for partition, offset in continued.items()}})
        return
    for partition, offset in continued.items():
        say(f'processes continue in partition {partition} of "events" at offset {offset}')
    if not continued:
        say("nothing that processes were sent is lost: they continue where they are")
