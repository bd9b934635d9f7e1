"""Settings of the log, from the environment."""

from __future__ import annotations

import pytest

from headwater.eventlog.errors import SettingError
from headwater.eventlog.settings import LogSettings


def test_all_but_the_modules_has_defaults() -> None:
    settings = LogSettings.from_environment({"HEADWATER_MODULES": "listings"})
    assert settings == LogSettings(modules=("listings",))
    assert settings.topic("events") == "headwater.events"


def test_modules_are_split() -> None:
    assert LogSettings.from_environment({"HEADWATER_MODULES": " a.b, ,c "}).modules == ("a.b", "c")
    for nothing in ({}, {"HEADWATER_MODULES": ""}):
        with pytest.raises(SettingError, match="HEADWATER_MODULES"):
            LogSettings.from_environment(nothing)


def test_the_deployment_is_described_for_whoever_is_about_to_drop_something() -> None:
    settings = LogSettings(environment="shop", bootstrap="k:9092", modules=("bank.views", "orders"))
    assert settings.described == 'environment "shop" at k:9092, modules bank.views, orders'


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HEADWATER_ENVIRONMENT", "Prod"),
        ("HEADWATER_ENVIRONMENT", "a" * 32),
        ("HEADWATER_ENVIRONMENT", ""),
        ("HEADWATER_ENVIRONMENT", "a.b"),
        ("HEADWATER_PARTITIONS", "0"),
        ("HEADWATER_PARTITIONS", "four"),
        ("HEADWATER_PATCH_PARTITIONS", "-1"),
        ("HEADWATER_REPLICATION", "²"),
    ],
)
def test_a_wrong_value_is_an_error_that_names_its_variable(variable: str, value: str) -> None:
    with pytest.raises(SettingError, match=variable):
        LogSettings.from_environment({variable: value})
