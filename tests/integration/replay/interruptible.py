"""Views that live in every store, one for each phase of a rebuild."""

from __future__ import annotations

from tests.contracts.view_histories import every_fold

at_create = every_fold("at_create", "group")
at_bulk = every_fold("at_bulk", "group")
at_index = every_fold("at_index", "group")
at_catch_up = every_fold("at_catch_up", "group")
at_swap = every_fold("at_swap", "group")
at_hand_over = every_fold("at_hand_over", "thing_id")

INTERRUPTED = {
    "create": at_create,
    "bulk": at_bulk,
    "index": at_index,
    "catch-up": at_catch_up,
    "swap": at_swap,
    "hand-over": at_hand_over,
}
