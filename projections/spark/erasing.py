"""Leaves out events that a later tombstone erases, even before compaction removes them.

Tombstones are rare, and looking for them first costs a scan of the log. So a fold that knows of none reports whether it
met one (`folding.ERASES`), and is then repeated. From then on, replays look first, until the log has no tombstones.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from eventlog.admin import topic_id
from eventlog.settings import LogSettings
from eventlog.topics import EVENTS
from projections.spark.events import TOMBSTONE_ROW
from projections.spark.kafka_source import Ranges, read_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

_KEY, _PARTITION, _UNTIL = "_erased_key", "_erased_partition", "_erased_until"

NOTE: Final = "erasures.txt"
"""View names contain no dot."""


@dataclass(frozen=True)
class Erasures:
    """The tombstones of one deployment's log, and a note whether there are any."""

    settings: LogSettings

    @property
    def are_known(self) -> bool:
        """Whether an earlier replay has met tombstones in this log."""
        try:
            return self._note.read_text() == topic_id(self.settings, EVENTS)
        except FileNotFoundError:
            return False
        except (OSError, ValueError) as error:
            log.warning("%s cannot be read: %s", self._note, error)
            return False

    def keep(self, met: bool) -> None:
        """Note for the next replay whether there are tombstones; without the note, it may have to fold twice."""
        try:
            if met:
                self._note.parent.mkdir(parents=True, exist_ok=True)
                # a topic that was deleted and created again has the same name, but other events
                self._note.write_text(topic_id(self.settings, EVENTS))
            else:
                self._note.unlink(missing_ok=True)
        except OSError as error:
            log.warning("the next replay may fold twice: %s", error)

    def of(self, session: SparkSession, ranges: Ranges) -> DataFrame:
        """Each key that a tombstone in `ranges` erases, with its partition and the offset of the last tombstone.

        It is read once, and cached until `unpersist`.
        """
        return erased(read_ranges(session, self.settings, ranges)).persist()

    @property
    def _note(self) -> Path:
        return self.settings.state.absolute() / "replays" / self.settings.environment / NOTE


def erased(records: DataFrame) -> DataFrame:
    """The keys that the tombstones among Kafka's records erase: see `Erasures.of`."""
    tombstones = records.where(TOMBSTONE_ROW).selectExpr(
        f"`partition` as {_PARTITION}", f"key as {_KEY}", f"`offset` as {_UNTIL}"
    )
    return tombstones.groupBy(_PARTITION, _KEY).max(_UNTIL).withColumnRenamed(f"max({_UNTIL})", _UNTIL)


def remaining(records: DataFrame, erased: DataFrame) -> DataFrame:
    """Kafka's records without those that `erased` names; records after the tombstone stay."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    # Spark does not know how few they are, and would sort the log
    few = F.broadcast(erased)
    is_erased = F.expr(f"`partition` = {_PARTITION} and key = {_KEY} and `offset` < {_UNTIL}")
    return records.join(few, is_erased, "left_anti")
