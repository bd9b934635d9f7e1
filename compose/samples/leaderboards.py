"""Leaderboards of samples: the order of rows, in the API's answers and in the sorted sets of Valkey."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import httpx
import valkey

from headwater.compose.samples.report import time_text
from headwater.compose.samples.sample import Deployment
from headwater.compose.samples.stored_rows import Rows

MAX_ROWS: Final = 1000

Leaders = dict[tuple[Any, ...], list[str]]
"""The keys of rows, the first one first, by the values of `within`."""


@dataclass(frozen=True)
class Leaderboard:
    """A ranking of a view. column: of a number, the highest first. within: columns that divide the rows."""

    view: str
    key: str
    column: str
    within: tuple[str, ...] = ()

    def leaders(self, rows: Rows) -> Leaders:
        """The order that these rows must have; rows with equal numbers are in the order of their keys."""
        found: Leaders = {}
        for key in sorted(rows, key=lambda key: (-rows[key][self.column], key.encode())):
            found.setdefault(tuple(rows[key][name] for name in self.within), []).append(key)
        return found

    async def shown(self, http: httpx.AsyncClient, groups: Leaders) -> Leaders:
        """The order in the API's answers, for these groups: the leaders, and page by page those after them."""
        found: Leaders = {}
        for values in groups:
            filters = {name: _parameter(value) for name, value in zip(self.within, values, strict=True)}
            query: dict[str, Any] = {**filters, "sort": f"-{self.column}", "limit": 3}
            found[values] = []
            while query.get("cursor", "") is not None:
                page = (await http.get(f"/views/{self.view}", params=query)).raise_for_status().json()
                found[values] += [row[self.key] for row in page["rows"]]
                query |= {"limit": MAX_ROWS, "cursor": page["next"]}
        return found

    def stored(self, deployment: Deployment, groups: Leaders) -> Leaders:
        """The order in the sorted sets of these groups."""
        ranking = "/".join((f"-{self.column}", *((",".join(self.within),) if self.within else ())))
        with valkey.Valkey.from_url(deployment.endpoints.valkey, decode_responses=True) as cache:
            generation = cache.get(f"{deployment.environment}:{self.view}:generation")
            name = f"{deployment.environment}:{self.view}:g{generation}.ranking:{ranking}"
            sets = {values: f"{name}:{_texts(values)}" if values else name for values in groups}
            ordered: Any = {values: cache.zrange(each, 0, -1) for values, each in sets.items()}
        return dict(ordered)

    def differences(self, expected: Leaders, actual: Leaders, place: str) -> Iterator[str]:
        """How the orders differ, as texts. place: where the actual one is."""
        for values, keys in expected.items():
            if actual[values] != keys:
                group = f" of {', '.join(map(str, values))}" if values else ""
                yield f"the leaders{group} in {self.view} are {actual[values]} in {place}, Python says {keys}"


def _texts(values: tuple[Any, ...]) -> str:
    return json.dumps([_parameter(value) for value in values], ensure_ascii=False, separators=(",", ":"))


def _parameter(value: Any) -> Any:
    return time_text(value) if isinstance(value, datetime) else value
