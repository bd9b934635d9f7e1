"""The rows of the views of saved searches, computed apart from Headwater."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import acos, cos, degrees, radians, sin
from typing import Any, Final

from headwater.compose.samples.report import row_key
from headwater.compose.samples.sample import Request
from headwater.compose.samples.stored_rows import Rows

KM_PER_DEGREE: Final = 111.195

Values = dict[str, Any]


@dataclass(frozen=True)
class Change:
    """One thing that happens. kind: "save", "change", "delete" or "offer"."""

    kind: str
    data: Mapping[str, Any]

    @property
    def request(self) -> Request:
        """The request that says so. An offer has no time: it is that of its arrival, as of a command."""
        if self.kind != "offer":
            return Request(f"saved_search.{self.kind}", dict(self.data))
        body = {"id": self.data["id"], "source": "agent", "data": {k: v for k, v in self.data.items() if k != "id"}}
        return Request("home_offered", body, is_observation=True)


def alerts(changes: Iterable[Change]) -> Rows:
    """The rows of `search_alerts`, without their times, if these things happen one after another."""
    searches: dict[str, Values] = {}
    found: Rows = {}
    for each in changes:
        match each.kind:
            case "save":
                searches[each.data["search_id"]] = dict(each.data)
            case "change":
                id_ = each.data["search_id"]
                searches[id_] = {"city": searches[id_]["city"], **each.data}
            case "delete":
                del searches[each.data["search_id"]]
            case _:
                for id_, search in searches.items():
                    if is_found(search, each.data):
                        offer = f"home_offered/agent/{each.data['id']}"
                        row = {name: each.data[name] for name in ("home", "city", "price", "beds")}
                        found[row_key(id_, offer)] = {"search": id_, "offer": offer, **row}
    return found


def is_found(search: Mapping[str, Any], offer: Mapping[str, Any]) -> bool:
    """Whether a search finds a home."""
    words = offer["description"].casefold().replace(",", " ").split()
    return (
        search["city"] == offer["city"]
        and search.get("min_price", 0) <= offer["price"] <= search.get("max_price", 10**12)
        and search.get("beds", 0) <= offer["beds"]
        and all(each.casefold() in words for each in search.get("words", "").split())
        and ("within_km" not in search or _kilometres(search, offer) <= search["within_km"])
    )


def _kilometres(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """By the spherical law of cosines."""
    here, there = radians(one["latitude"]), radians(other["latitude"])
    apart = cos(radians(one["longitude"] - other["longitude"]))
    angle = acos(min(1.0, sin(here) * sin(there) + cos(here) * cos(there) * apart))
    return degrees(angle) * KM_PER_DEGREE
