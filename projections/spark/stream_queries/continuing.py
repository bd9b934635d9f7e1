"""Whether the query of a generation can continue with the state that is on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headwater.eventlog.ports import EventLog
from headwater.eventlog.settings import LogSettings
from headwater.projections.errors import StreamQueryFailed
from headwater.projections.generations.rebuild.engine import holds_events
from headwater.projections.generations.registry.sources import sources
from headwater.projections.spark.stream_queries.checkpoint import Checkpoint
from headwater.projections.spark.stream_queries.damage import damaged_file
from headwater.projections.stores.store import Ledger, Target


def why_lost(
    target: Target, ledgers: Iterable[Mapping[int, Ledger]], settings: LogSettings, log: EventLog
) -> str | None:
    """Why the query of a generation cannot continue here, after "its state"; None if it can, or if there is no state.

    ledgers: those of the generation in each store; not read if there is no checkpoint. A checkpoint may be older than
    the rows if its disk was restored, or lost its last writes. Its query would give the numbers of batches that the
    rows have to other batches, and stores would keep the rows of the earlier ones. In any other case it is not older:
    a batch is written there before it begins, and rows have reached its end only after it has ended.

    Raises LogUnavailable.
    """
    if not target.view.has_state:
        return None
    checkpoint = Checkpoint.of(settings, target.tag)
    if not checkpoint.exists:
        return missing(settings)
    if (problem := checkpoint.not_of_this_code()) is not None:
        return problem
    if (damaged := damaged_file(checkpoint.folder)) is not None:
        return f"cannot be read: {damaged} is damaged or missing"
    reached = _furthest(target, ledgers, settings)  # first: the query may run elsewhere, and the checkpoint move on
    try:
        last = checkpoint.begun()
        ends = checkpoint.ends(last, settings) if last >= 0 else {}
    except (StreamQueryFailed, ValueError, IndexError):
        return "cannot be read"
    if last < 0:  # a generation that is built without records covers their heartbeats before its query begins
        is_older = holds_events(log, {source: (0, end) for source, end in reached.items()})
    else:
        is_older = any(end > ends.get(source, 0) for source, end in reached.items())
    return "is older than its rows" if is_older else None


def missing(settings: LogSettings) -> str:
    """What is said of a state that is not there, after "its state"."""
    return f"is not in {settings.checkpoints}" if settings.checkpoints else "is not on this machine"


def _furthest(target: Target, ledgers: Iterable[Mapping[int, Ledger]], settings: LogSettings) -> dict[str, int]:
    """By source, the offset below which all is applied in at least one store, from at least one partition."""
    found = [ledger for each in ledgers for ledger in each.values()]
    return {
        source: max((each.reached(source) for each in found), default=0) for source in sources([target.view], settings)
    }
