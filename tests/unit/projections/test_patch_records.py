"""Records of `patches` as a loader reads them: its own, those of others, and what is no patch."""

from __future__ import annotations

import pytest

from headwater.projections.loading.decoding import NotAPatch, read_into
from headwater.projections.stores.store import Batch
from headwater.projections.table.patch import Patch, Place

VALUE = b'{"p":1,"o":7,"i":2,"t":0,"c":{"total":1}}'
TAGS = {b"ours@1"}


def test_patches_of_views_that_are_not_loaded_are_not_even_parsed() -> None:
    batch = Batch(0)
    read_into(batch, b"ours@1/a/b", VALUE, TAGS)
    for key in (b"others@1/a", b"ours@2/a"):
        read_into(batch, key, b"{ no JSON", TAGS)
        read_into(batch, key, None, TAGS)
    assert batch.patches == {"ours@1": [Patch("a/b", "1", Place(7, 2), {"total": 1})]}
    read_into(batch, b"others@1/a", VALUE)
    assert batch.patches.keys() == {"ours@1", "others@1"}


def test_progress_is_read_whoever_it_is_of() -> None:
    batch = Batch(0)
    read_into(batch, b"progress/1", b'{"p":1,"o":7,"t":0,"v":["ours@1","others@1"]}', TAGS)
    assert batch.progress["ours@1"] == {"1": 7}


@pytest.mark.parametrize("key", [None, b"", b"junk", b"junk/a", b"ours@1", b"ours@1/a", b"progress/1"])
def test_what_is_no_patch_is_found_though_others_are_skipped(key: bytes | None) -> None:
    with pytest.raises(NotAPatch):
        read_into(Batch(0), key, b"{ no JSON", TAGS)


@pytest.mark.parametrize(
    "value",
    [
        b'{"p":null,"o":7,"i":0,"c":{}}',
        b'{"p":"x","o":7,"i":0,"c":{}}',
        b'{"p":1,"o":null,"i":0,"c":{}}',
        b'{"p":1,"o":7,"i":[],"c":{}}',
        b'{"p":1,"o":7,"i":0,"c":"total"}',
        b'{"p":1,"o":7,"i":0,"c":7}',
        b"[]",
        b"7",
        b"null",
    ],
)
def test_a_record_that_no_store_could_order_or_apply_is_no_patch(value: bytes) -> None:
    batch = Batch(0)
    with pytest.raises(NotAPatch):
        read_into(batch, b"ours@1/a", value)
    assert batch.patches == {}


def test_what_stands_for_a_patch_that_was_too_large_says_how_large() -> None:
    with pytest.raises(NotAPatch, match=r"^it had 9 bytes"):
        read_into(Batch(0), b"ours@1/a", b'{"too_large":9}', TAGS)
