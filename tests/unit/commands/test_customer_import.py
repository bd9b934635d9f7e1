"""The shop's customers, from their rows to events: what each reaction and decision says."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.commands.declaring.row_inputs import RowDeleted
from headwater.samples.shop.domain.customer import (
    CustomerDetailsChanged,
    CustomerRegistered,
    CustomerRemoved,
    ImportCustomer,
    RemoveCustomer,
    customer,
)
from headwater.samples.shop.processes import customer_import
from headwater.samples.shop.source import Customer, Product
from headwater.testing import given
from tests.support.captured_customers import ADA

IMPORTED = ImportCustomer(
    customer_id="42", name="Ada", email="ada@example.org", is_business=False, credit_limit_cents=1_250
)
REGISTERED = CustomerRegistered(**IMPORTED.model_dump())
RENAMED = IMPORTED.model_copy(update={"name": "Bo"})


def test_each_change_of_a_row_is_one_command_and_nothing_is_kept() -> None:
    registered = given(customer_import).when(ADA).then(IMPORTED).then_ended()
    renamed = registered.when(ADA.model_copy(update={"name": "Bo", "credit_limit": None})).then_ended()
    renamed.then(RENAMED.model_copy(update={"credit_limit_cents": None}))
    renamed.when(RowDeleted(Customer, "42")).then(RemoveCustomer(customer_id="42")).then_ended()


def test_a_customer_has_a_history_and_what_is_known_is_no_news() -> None:
    registered = given(customer).when(IMPORTED).then(REGISTERED)
    registered.when(IMPORTED).then_nothing()
    changed = registered.when(RENAMED)
    changed.then(CustomerDetailsChanged(**RENAMED.model_dump(), changed=("name",)))
    removed = changed.when(RemoveCustomer(customer_id="42")).then(CustomerRemoved(customer_id="42"))
    removed.when(RemoveCustomer(customer_id="42")).then_nothing()
    removed.when(IMPORTED).then(REGISTERED)


def test_a_row_that_the_process_does_not_handle_is_an_error_of_the_test() -> None:
    only_its_key: dict[str, Any] = {"sku": "P-1"}
    product = Product.model_construct(**only_its_key)
    with pytest.raises(TypeError, match=r'"customer_import" does not handle .*add it to the annotation of "event"'):
        given(customer_import).when(product)
    with pytest.raises(ValueError, match='for the instance "43", but what came before it is for "42"'):
        given(customer_import, ADA).when(ADA.model_copy(update={"id": 43}))
    with pytest.raises(TypeError, match="does not handle"):
        given(customer_import).when(RowDeleted(Product, "P-1"))
