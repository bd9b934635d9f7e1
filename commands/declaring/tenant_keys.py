"""Checks that keys of views and processes keep apart what tenants have under the same id."""

from __future__ import annotations

from collections.abc import Collection

from headwater.commands.declaring.aggregate import Event
from headwater.commands.declaring.id_checks import id_claims
from headwater.commands.declaring.registry import AnyAggregate, CommandRegistry


def missing_parts(
    commands: CommandRegistry, event: type[Event], key: Collection[str]
) -> tuple[AnyAggregate, str] | None:
    """The aggregate of an event, and the part of its id that a key lacks, so that callers share what has this key.

    That is a part which the API fills with a claim of the caller, if the key has another part of the id. key: fields of
    the event. None: nothing is lacking, or the key is no id at all, such as that of a statistic. Raises
    DeclarationError if commands fill the id with different claims.
    """
    aggregate = commands.aggregates.get(event.type.partition(".")[0])
    if aggregate is None or not set(key) & set(aggregate.identity.names):
        return None
    claimed = id_claims(aggregate.name, aggregate.identity, aggregate.commands)
    lacking = [name for name in aggregate.identity.names if name in claimed and name not in key]
    return (aggregate, lacking[0]) if lacking else None
