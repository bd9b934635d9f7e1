"""The rules of the aggregates of `sales`."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.samples.sales.domain.membership import ChangeTier, TierChanged, membership
from headwater.samples.sales.domain.sale import MakeSale, SaleMade, sale
from headwater.samples.sales.domain.tax_rate import ChangeTaxRate, TaxRateChanged, tax_rate
from headwater.testing import given

SALE: dict[str, Any] = {"sale_id": "S1", "customer": "Ada", "country": "AT", "category": "books", "cents": 250}


def test_a_sale_is_made_once() -> None:
    given(sale).when(MakeSale(**SALE)).then(SaleMade(**SALE))
    given(sale, SaleMade(**SALE)).when(MakeSale(**SALE | {"cents": 1})).then_rejected("already_made")


@pytest.mark.parametrize("before", ["basic", "silver"])
def test_a_tier_changes_if_it_is_another_one(before: str) -> None:
    change = TierChanged(customer="Ada", tier="silver")
    asked = given(membership, TierChanged(customer="Ada", tier=before)).when(ChangeTier(customer="Ada", tier="silver"))
    asked.then(*([] if before == "silver" else [change]))


@pytest.mark.parametrize("before", [0, 2_000])
def test_a_rate_changes_if_it_is_another_one(before: int) -> None:
    change = TaxRateChanged(country="AT", basis_points=0)
    known = TaxRateChanged(country="AT", basis_points=before)
    given(tax_rate, known).when(ChangeTaxRate(country="AT", basis_points=0)).then(*([] if before == 0 else [change]))
    given(tax_rate).when(ChangeTaxRate(country="AT", basis_points=0)).then(change)
