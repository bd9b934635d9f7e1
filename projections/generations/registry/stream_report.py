"""What the query of a stream view's generation has done: written by its process, shown by `replay status`."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from headwater.eventlog.settings import LogSettings

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StreamReport:
    """Since the generation was begun; a batch that is repeated after a crash may count twice.

    batch: number of the last batch, and its duration.
    records: read, heartbeats included.
    amending, dropped: late observations that were taken in, and that were left out.
    unreadable: records that were left out.
    lost: rows that Spark dropped although the rule of lateness admits them.
    state: of the query, in the last batch.
    watermark: as Spark writes it; empty if there is none.
    starting: since the start of the query or its process, no batch has ended.
    failure: why the query stopped, or could not start; empty once a later attempt has held (see Watched.has_held).
    state_lost: why it cannot continue, after "its state", so that the view must be computed again; else empty.
    """

    batch: int = -1
    batch_s: float = 0.0
    records: int = 0
    amending: int = 0
    dropped: int = 0
    unreadable: int = 0
    lost: int = 0
    state_rows: int = 0
    state_bytes: int = 0
    watermark: str = ""
    starting: bool = False
    failure: str = ""
    state_lost: str = ""

    def text(self) -> str:
        """One line for people."""
        parts = [
            f"batch {self.batch} took {self.batch_s:.1f} s",
            f"{self.records:,} records, {self.amending:,} late and taken in, {self.dropped:,} late and dropped, "
            f"{self.unreadable:,} unreadable",
            f"state of {self.state_rows:,} rows, {self.state_bytes / 1e6:.1f} MB",
            f"watermark {self.watermark or 'none'}",
        ]
        parts += ["starting"] if self.starting else []
        parts += [f"FAILED: {self.failure}"] if self.failure else []
        return "; ".join([*parts, *([f"{self.lost:,} rows LOST behind the watermark"] if self.lost else [])])


def read_report(settings: LogSettings, tag: str) -> StreamReport | None:
    """The report of the generation with this tag; None if its query has not run on this machine."""
    try:
        found = json.loads(_file(settings, tag).read_text())
        return StreamReport(**{field.name: found[field.name] for field in fields(StreamReport)})
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        log.warning("cannot read the report of %s: %s", tag, error)
        return None


def write_report(settings: LogSettings, tag: str, report: StreamReport | None) -> None:
    """Replace the report; None: there is none any more. If it cannot be written, that is logged."""
    file = _file(settings, tag)
    try:
        if report is None:
            file.unlink(missing_ok=True)
            return
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")
        part.write_text(json.dumps(asdict(report)))
        part.replace(file)
    except OSError as error:
        log.warning("cannot write the report of %s: %s", tag, error)


def note_start(settings: LogSettings, tag: str) -> StreamReport:
    """Note in the report that the query or its process starts, and return it: until a batch has ended, its view is not
    stalled, since the first batch reads all that came in the meantime."""
    report = replace(read_report(settings, tag) or StreamReport(), starting=True, state_lost="")
    write_report(settings, tag, report)
    return report


def note_failure(settings: LogSettings, tag: str, cause: str, state_lost: str = "") -> None:
    """Note in the report why the query does not run: it failed, or could not be started.

    state_lost: see StreamReport.
    """
    report = read_report(settings, tag) or StreamReport()
    write_report(settings, tag, replace(report, starting=False, failure=cause, state_lost=state_lost))


def recomputed(view: str) -> str:
    """What happens to a view whose state is lost."""
    return f"`headwater projections` computes the view again; or run `replay rebuild {view}`"


def _file(settings: LogSettings, tag: str) -> Path:
    return settings.state.absolute() / "streams" / settings.environment / f"{tag}.json"
