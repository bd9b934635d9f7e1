"""Views that live in every store, one for each phase of a rebuild."""

from __future__ import annotations

from tests.contracts.view_histories import some_folds, thing  # noqa: F401 - a module of a deployment

at_create = some_folds("at_create", "group")
at_bulk = some_folds("at_bulk", "group")
at_index = some_folds("at_index", "group")
at_catch_up = some_folds("at_catch_up", "group")
at_swap = some_folds("at_swap", "group")
at_hand_over = some_folds("at_hand_over", "thing_id")

INTERRUPTED = {
    "create": at_create,
    "bulk": at_bulk,
    "index": at_index,
    "catch-up": at_catch_up,
    "swap": at_swap,
    "hand-over": at_hand_over,
}
