"""Runs of the script with which a bulk load writes to Valkey: some rows each, and fewer if they are large."""

from __future__ import annotations

import orjson

from headwater.projections.stores.documents import DocumentForm
from headwater.projections.stores.valkey.rankings import Rankings
from headwater.projections.stores.valkey.store import SCRIPT_BYTES, SCRIPT_ROWS, ValkeyWriter
from headwater.projections.table.layout import DELETED, Itself
from headwater.projections.table.monoids import State
from headwater.projections.table.types import ColumnType

FORM = DocumentForm("id", {"text": ColumnType.TEXT}, {"text": Itself("text")}, {})
WRITER = ValkeyWriter(
    "valkey://nowhere", ("texts", 1), "rows:", "ledgers", "counter", FORM, Rankings("test", "texts", 1, ())
)


def calls(*texts: str) -> list[tuple[list[str], list[bytes]]]:
    return list(WRITER._calls([(f"{number}/ü", {"text": text}) for number, text in enumerate(texts)]))


def test_each_run_has_some_rows_and_each_row_is_in_one() -> None:
    made = calls(*("a" for _ in range(2 * SCRIPT_ROWS + 1)))
    assert [len(keys) for keys, _ in made] == [SCRIPT_ROWS, SCRIPT_ROWS, 1]
    assert [key for keys, _ in made for key in keys] == [f"rows:{number}/ü" for number in range(2 * SCRIPT_ROWS + 1)]


def test_large_rows_share_a_run_only_up_to_its_size() -> None:
    made = calls("a", "b" * SCRIPT_BYTES, "c", "d" * (SCRIPT_BYTES // 3), "e" * (SCRIPT_BYTES // 3), "f")
    assert [len(keys) for keys, _ in made] == [2, 3, 1]


def test_a_row_has_its_state_and_what_readers_see_unless_it_is_deleted() -> None:
    rows: list[tuple[str, State]] = [("1", {"text": "a"}), ("2", {"text": "b", DELETED: True})]
    ((_, texts),) = WRITER._calls(rows)
    assert [text and orjson.loads(text) for text in texts] == [
        {"text": "a"},
        {"id": "1", "text": "a"},
        {"text": "b", DELETED: True},
        b"",
    ]
    assert list(WRITER._calls([])) == []
