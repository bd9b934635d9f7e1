"""How two parts of a row combine, one file per family. May import the types of columns, nothing else.

A fold (`table/folds`) converts one event into the form that a monoid combines. Every monoid is associative with null as
its identity. So one declaration can run event by event (live) and over parts of the log at once (replay).
"""

from headwater.projections.table.monoids.bulk import in_bulk
from headwater.projections.table.monoids.entries import Keyed, Ranked
from headwater.projections.table.monoids.members import MEMBERS, Members
from headwater.projections.table.monoids.monoid import Entries, Monoid, State, StateField
from headwater.projections.table.monoids.rows import row_value
from headwater.projections.table.monoids.scalars import Extreme, Pick, Sum, extreme_of, sum_of
from headwater.projections.table.monoids.sketches import Sketch
from headwater.projections.table.monoids.tallies import Tally

__all__ = [
    "MEMBERS",
    "Entries",
    "Extreme",
    "Keyed",
    "Members",
    "Monoid",
    "Pick",
    "Ranked",
    "Sketch",
    "State",
    "StateField",
    "Sum",
    "Tally",
    "extreme_of",
    "in_bulk",
    "row_value",
    "sum_of",
]
