"""Compares the views of listings with pandas."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from headwater.compose.samples.sample import Deployment
from headwater.compose.samples.stored_rows import Rows, cached, differences, documents, table

from . import sacramento

CARD_COLUMNS = ("city", "property_type", "beds", "baths", "square_feet", "status", "price")
SEARCH_COLUMNS = ("description", "zip", *CARD_COLUMNS)
LISTING_COLUMNS = (*SEARCH_COLUMNS, "latitude", "longitude", "first_price", "price_changes", "sold_for")


def mismatches(frame: pd.DataFrame, deployment: Deployment) -> list[str]:
    """Every difference between a view and `frame`, as a text; empty if they are equal."""
    visible = frame[frame["status"] != "withdrawn"]
    checked = [
        ("listings", _expected(frame, LISTING_COLUMNS), table(deployment, "listings", "listing_id")),
        ("city_market", _rows(sacramento.city_market(frame)), table(deployment, "city_market", "city")),
        ("listing_search", _expected(visible, SEARCH_COLUMNS), documents(deployment, "listing_search", "listing_id")),
        ("listing_card", _expected(visible, CARD_COLUMNS), cached(deployment, "listing_card")),
    ]
    return [text for view, expected, actual in checked for text in differences(view, expected, actual, "pandas")]


def _expected(frame: pd.DataFrame, columns: tuple[str, ...]) -> Rows:
    return _rows(frame[list(columns)])


def _rows(frame: pd.DataFrame) -> Rows:
    return {str(key): {str(name): _plain(value) for name, value in row.items()} for key, row in frame.iterrows()}


def _plain(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and math.isnan(value) else value
