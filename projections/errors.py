"""The errors of the read side.

ProjectionError
├── ViewDeclarationError a declaration of a view is wrong; found at start
├── UnknownView          no registered view has this name
├── StoreUnavailable     a store did not answer
│   ├── TakenOver        another loader writes to this part of the store now
│   ├── StoreLocked      another session holds a lock that a change needs
│   ├── LacksRight       a store refuses what its user may not do
│   └── KeysAway         the store of keys, which plaintext columns need, did not answer
├── Unloadable           a store cannot hold the values of a patch
├── GenerationMissing    a view has no such generation
├── CannotLoad           a generation lacks its ledger, or patches that were deleted
├── LedgerWentBack       a ledger is before what was read
├── PoisonEvent          a replay found a record that cannot be read
├── RefusedPatch         a replay found a patch that a store cannot hold
├── BulkLoadFailed       the Spark job that folds the log for a view failed
├── LiveQueryFailed      the Spark query that makes patches failed
├── StreamQueryFailed    the Spark query of a stream view failed
├── LoaderDied           a loader stopped while a generation caught up
├── CannotCatchUp        a generation came no closer to the live query
├── RebuildFailed        a rebuild ended without a swap; the live generation is untouched
│   └── RollbackFailed   so did a rollback
├── CannotPublish        an alias in a store could not be changed
├── NotPublished         a generation is live, but a store's alias does not lead to it yet
├── StillNamed           a generation cannot be dropped: an alias may lead to it
└── StillUsed            a generation cannot be dropped: objects that users defined depend on it
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headwater.eventlog.declaring import WrongDeclaration


class ProjectionError(Exception):
    """Root of the read side's errors."""


class ViewDeclarationError(ProjectionError, WrongDeclaration):
    """A view is declared wrong; the message names it and says what to change."""

    def __init__(self, view: str, problem: str) -> None:
        super().__init__(f'view "{view}": {problem}')
        self.view, self.problem = view, problem


class UnknownView(ProjectionError):
    """No registered view has this name."""

    def __init__(self, view: str, known: Sequence[str]) -> None:
        super().__init__(f'unknown view "{view}": use one of {", ".join(sorted(known))}')
        self.view, self.known = view, tuple(known)


class StoreUnavailable(ProjectionError):
    """A store did not answer; its rows are late, not lost."""

    def __init__(self, store: str, cause: str) -> None:
        super().__init__(f"{store} is unavailable: {cause}; its views catch up automatically when it is back")
        self.store, self.cause = store, cause


class TakenOver(StoreUnavailable):
    """Another loader writes to this part of the store now, as in each hand-over; cause: which part."""

    def __str__(self) -> str:
        return f"{self.store}: {self.cause}"


class StoreLocked(StoreUnavailable):
    """A table of a store could not be changed, because somebody held a lock on it; cause: who, and what to do."""

    def __str__(self) -> str:
        return f"{self.store}: {self.cause}"


class LacksRight(StoreUnavailable):
    """A store refuses what its user may not do; cause: what the store says."""

    def __str__(self) -> str:
        return (
            f"{self.store} refuses it: {self.cause}; run `headwater create` as the operator, and give this user what "
            "`headwater grants` prints"
        )


class KeysAway(StoreUnavailable):
    """The store of keys did not answer, so personal values cannot be opened for plaintext columns."""

    def __init__(self, cause: str) -> None:
        super().__init__("the store of keys", cause)

    def __reduce__(self) -> tuple[type[KeysAway], tuple[str]]:
        return KeysAway, (self.cause,)


class Unloadable(ProjectionError):
    """A store cannot hold the values of a patch, such as a text; other patches are not affected."""

    def __init__(self, store: str, cause: str) -> None:
        super().__init__(f"{store} cannot store the value: {cause}")
        self.store, self.cause = store, cause


class GenerationMissing(ProjectionError):
    """A view has no such generation, or none that is live yet.

    known: the generations that it has, if that is known.
    """

    def __init__(self, view: str, generation: int | None = None, known: Sequence[int] = ()) -> None:
        which = "no live generation yet" if generation is None else f"no generation {generation}"
        next_step = f"start `headwater projections`, or run `replay rebuild {view}`"
        if known:
            next_step = f"use {' or '.join(f'{view}@g{known_generation}' for known_generation in known)}"
        super().__init__(f'view "{view}" has {which}: {next_step}')
        self.view, self.generation, self.known = view, generation, tuple(known)


class CannotLoad(ProjectionError):
    """A loader has left out a generation that only a rebuild brings up to date."""

    def __init__(self, store: str, view: str, generation: int, problem: str) -> None:
        super().__init__(f'generation {generation} of "{view}" in {store} {problem}: run `replay rebuild {view}`')
        self.store, self.view, self.generation, self.problem = store, view, generation, problem


class LedgerWentBack(ProjectionError):
    """A ledger is before what this process has read: another loader wrote it meanwhile, as for a moment when a rebuild
    goes live, or the store has lost its last writes. Patches are read again from the ledger's position.
    """

    def __init__(
        self, store: str, view: str, partition: int, expected: int, actual: int, source: str | None = None
    ) -> None:
        """source: whose offsets these are; None: those of `patches`."""
        if source is None:
            problem = f'at offset {actual} of partition {partition} of "patches", not at {expected}'
            then = "reading again from there"
        else:
            problem, then = f'at offset {actual} of the source "{source}", not at {expected}', "start it again"
        super().__init__(
            f'{store} has view "{view}" {problem}: another loader wrote it, or the last writes were lost; {then}'
        )
        self.store, self.view, self.partition, self.expected, self.actual = store, view, partition, expected, actual


SHOWN_CHARACTERS: Final = 500
"""Of a record, in an error."""


class PoisonEvent(ProjectionError):
    """A replay found a record that cannot be read; the live query sends such a record to `dead-letters`."""

    def __init__(self, view: str, position: str, reason: str, others: int, event: str) -> None:
        more = f" ({others} more in this view)" if others else ""
        event = event if len(event) <= SHOWN_CHARACTERS else f"{event[:SHOWN_CHARACTERS]}…"
        super().__init__(
            f'view "{view}": record {position} of "events" cannot be read: {reason}{more}; fix the declaration, '
            "erase the record, or skip such records as the live query does (--skip-poison); "
            f"the record: {event}"
        )
        self.view, self.position, self.reason, self.others, self.event = view, position, reason, others, event


class RefusedPatch(ProjectionError):
    """A replay found a patch that a store cannot hold; a loader sends such a patch to `dead-letters`."""

    def __init__(self, view: str, store: str, key: str, position: str, cause: str) -> None:
        key = key[:SHOWN_CHARACTERS]
        super().__init__(
            f'view "{view}": {store} refuses record {position} in row "{key}": {cause}; '
            "change the declaration, erase the record, or leave such records out as loaders do (--skip-poison)"
        )
        self.view, self.store, self.key, self.position, self.cause = view, store, key, position, cause


class BulkLoadFailed(ProjectionError):
    """The Spark job that folds the log for a view failed; the cause is chained."""

    def __init__(self, view: str, cause: str) -> None:
        super().__init__(f'the bulk load of view "{view}" failed: {cause}; fix the cause and start it again')
        self.view, self.cause = view, cause


class LiveQueryFailed(ProjectionError):
    """The Spark query that makes patches failed; after a restart it repeats patches since its last checkpoint."""

    def __init__(self, cause: str) -> None:
        super().__init__(f"the live query failed: {cause}; start it again, it continues from its checkpoint")
        self.cause = cause


class StreamQueryFailed(ProjectionError):
    """The Spark query of a stream view failed; other views are not affected."""

    def __init__(self, view: str, cause: str) -> None:
        super().__init__(f'the query of the stream view "{view}" failed: {cause}')
        self.view, self.cause = view, cause


class RebuildFailed(ProjectionError):
    """A rebuild ended without a swap; the live generation is untouched."""

    def __init__(self, view: str, phase: str, cause: str) -> None:
        super().__init__(f'rebuild of "{view}" failed during {phase}: {cause}; the live generation is untouched')
        self.view, self.phase, self.cause = view, phase, cause


class RollbackFailed(RebuildFailed):
    """A rollback ended without a swap; the live generation is untouched."""

    def __init__(self, view: str, phase: str, cause: str) -> None:
        super().__init__(view, phase, cause)
        during = "" if phase == "start" else f" during {phase}"
        self.args = (f'rollback of "{view}" failed{during}: {cause}; the live generation is untouched',)


class LoaderDied(ProjectionError):
    """A loader stopped while a generation caught up; its error is in the log."""

    def __init__(self, view: str) -> None:
        super().__init__(f'a loader of view "{view}" stopped: see the log above')
        self.view = view


class CannotCatchUp(ProjectionError):
    """A generation came no closer to the end of `patches` for long: they come faster than its loader applies them."""

    def __init__(self, view: str, generation: int, left: int, minutes: float) -> None:
        super().__init__(
            f'generation {generation} of "{view}" came no closer to the live query for {minutes:.0f} minutes, and has '
            f"{left:,} patches left: rebuild it when fewer events arrive, or see what slows its stores"
        )
        self.view, self.generation, self.left = view, generation, left


class CannotPublish(ProjectionError):
    """The alias of a view in a store could not be changed; the message says why."""

    def __init__(self, store: str, view: str, cause: str) -> None:
        super().__init__(f'the alias "{view}" in {store} was not changed: {cause}')
        self.store, self.view, self.cause = store, view, cause


class NotPublished(ProjectionError):
    """A generation is live, but the alias in a store (SQL view, alias, key pointer) does not lead to it yet."""

    def __init__(self, view: str, generation: int, cause: str) -> None:
        super().__init__(
            f'generation {generation} of "{view}" is live and the API reads it, but not every alias leads to it: '
            f"{cause}; run `replay publish {view}` when that is fixed"
        )
        self.view, self.generation, self.cause = view, generation, cause


class StillNamed(ProjectionError):
    """Generations cannot be dropped: the current one is not published, or a store shows another one than the registry,
    so an alias may still lead to them."""

    def __init__(self, view: str, generations: Sequence[int]) -> None:
        super().__init__(
            f'nothing of "{view}" was dropped: an alias may still lead to generation '
            f"{', '.join(map(str, generations))}, because the last publish did not end, or the registry was restored; "
            f"run `replay publish {view}` first, or rebuild it"
        )
        self.view, self.generations = view, tuple(generations)


class StillUsed(ProjectionError):
    """A generation cannot be dropped: objects that users defined depend on it."""

    def __init__(self, store: str, view: str, generation: int, dependents: str) -> None:
        super().__init__(
            f'generation {generation} of "{view}" in {store} was not dropped, because other objects depend on it: '
            f"{dependents}; drop these, and the next rebuild or `replay prune` drops the generation"
        )
        self.store, self.view, self.generation, self.dependents = store, view, generation, dependents
