"""A matrix of types and edge values: a table with a column per type and a row per value, and how each path reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import create_model

from headwater.eventlog.capturing import Captured
from headwater.eventlog.capturing.changes import Operation
from tests.integration.sources.captured import Topic

SNAPSHOT, STREAM, AGAIN = "snapshot", "stream", "read again"
PATHS = (SNAPSHOT, STREAM, AGAIN)
DOCS = Path(__file__).parents[3] / "docs"


@dataclass(frozen=True)
class Differs:
    """A value that is not in the row as SQL has it. value: what a row has. stream: what it has after a change.

    again: what it has now and then if its table is read again, which is therefore refused.
    """

    value: Any
    stream: Any = ...
    again: Any = ...

    def on(self, path: str) -> Any:
        """What a row has."""
        return self.stream if path == STREAM and self.stream is not ... else self.value

    def may_be(self, path: str, got: Any) -> bool:
        """Whether a row has this now and then."""
        return path == AGAIN and self.again is not ... and got == self.again

    def text(self) -> str:
        """The same for the docs."""
        once = f"`{_shown(self.value)}`"
        return once if self.stream is ... else f"{once} in a snapshot, `{_shown(self.stream)}` in a change"


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


class Case(NamedTuple):
    """A type as SQL writes it, what is declared for it, and its values: each as SQL writes it, and as a row has it."""

    type: str
    declared: Any
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Matrix:
    """The table of some cases. Its column c0 is of the first case, and so on; its rows are numbered from 1."""

    table: type[Captured]
    cases: Sequence[Case]

    @classmethod
    def of(cls, name: str, cases: Sequence[Case]) -> Matrix:
        fields: dict[str, Any] = {
            f"c{n}": (case.declared if case.declared is Any else case.declared | None, None)
            for n, case in enumerate(cases)
        }
        table = create_model(
            "Typed", __base__=Captured, __cls_kwargs__={"table": name, "key": "id"}, id=(int, ...), **fields
        )
        return cls(table, cases)

    def columns(self) -> str:
        """The columns in SQL."""
        return ", ".join(f"c{n} {case.type}" for n, case in enumerate(self.cases))

    def rows(self) -> Iterator[tuple[int, str, str, str, Any]]:
        """The number of each row, its column, the type, its value in SQL, and what a row should have."""
        number = 0
        for n, case in enumerate(self.cases):
            for value, expected in case.values.items():
                number += 1
                yield number, f"c{n}", case.type, value, expected

    def read(self, topic: Topic) -> dict[str, dict[tuple[str, str], Any]]:
        """The values by path, type and SQL: the topic has each row read by a snapshot, changed, and read again."""
        places = {str(number): (column, (kind, value)) for number, column, kind, value, _ in self.rows()}
        found: dict[str, dict[tuple[str, str], Any]] = {path: {} for path in PATHS}
        for record in topic.records:
            change = record.change
            if change.row is None or change.key not in places:
                continue
            column, place = places[change.key]
            is_read = change.operation is Operation.SNAPSHOT
            path = STREAM if not is_read else AGAIN if place in found[SNAPSHOT] else SNAPSHOT
            found[path][place] = change.row[column]
        return found

    def wrong(self, topic: Topic) -> list[tuple[str, str, str, Any, Any]]:
        """What is otherwise than said: path, type, value in SQL, what a row has, and what it should have."""
        found = self.read(topic)
        return [
            (path, kind, value, got, said)
            for _, _, kind, value, expected in self.rows()
            for path in PATHS
            # by their texts, since -0.0 is equal to 0.0
            if repr(got := found[path].get((kind, value), "no record"))
            != repr(said := expected.on(path) if isinstance(expected, Differs) else expected)
            and not (isinstance(expected, Differs) and expected.may_be(path, got))
        ]

    def listed(self) -> list[str]:
        """The lines of the docs about the values that differ from SQL."""
        return [
            f"| `{kind}` | `{value}` | {expected.text()} |"
            for _, _, kind, value, expected in self.rows()
            if isinstance(expected, Differs) and expected.again is ...
        ]


def documented(page: str, heading: str) -> list[str]:
    """The lines of the table below a heading of a page of the docs, without its head."""
    section = (DOCS / page).read_text().partition(f"\n{heading}\n")[2].partition("\n#")[0]
    return [line for line in section.splitlines() if line.startswith("| `")]
