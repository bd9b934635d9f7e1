"""What contract tests share: clients that wait for a busy machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.patience import patient


@pytest.fixture(scope="package", autouse=True)
def patience() -> Iterator[None]:
    with patient():
        yield
