"""Every variable with a setting: wrong values are named together, without secrets; none can be changed."""

from __future__ import annotations

import os

import pytest

from headwater.api.settings import ApiSettings, ServerSettings
from headwater.commands.__main__ import HandlerVariables
from headwater.compose.settings import StackVariables
from headwater.eventlog.capturing.settings import ConnectVariables
from headwater.eventlog.errors import SettingError
from headwater.eventlog.programs.variables import Variables
from headwater.eventlog.security import KafkaSecurity, SecurityVariables
from headwater.eventlog.settings import LogSettings, LogVariables
from headwater.projections.settings import StoreSettings, StoreVariables
from headwater.projections.spark.session import SparkSettings, SparkVariables

EVERY = (
    ServerSettings,
    ConnectVariables,
    HandlerVariables,
    LogVariables,
    SecurityVariables,
    SparkVariables,
    StoreVariables,
)


def test_all_wrong_values_are_in_one_error() -> None:
    with pytest.raises(SettingError) as wrong:
        LogSettings.from_environment(
            {"HEADWATER_PARTITIONS": "0", "HEADWATER_REPLICATION": "3", "HEADWATER_RECEIPTS_DAYS": "x"}
        )
    assert str(wrong.value) == (
        'environment variable "HEADWATER_PARTITIONS" is "0": set it to an integer from 1 to 2147483647; '
        'environment variable "HEADWATER_RECEIPTS_DAYS" is "x": set it to a number of days from 1 to 36500'
    )
    assert wrong.value.variable == "HEADWATER_PARTITIONS"


@pytest.mark.parametrize(
    ("variables", "needs"),
    [
        ({"HEADWATER_ELASTICSEARCH": "localhost:9200"}, "the address of Elasticsearch, such as http://"),
        ({"HEADWATER_VALKEY": "u:secret@localhost:6379"}, "the address of Valkey, such as valkey://"),
        ({"HEADWATER_ENVIRONMENT": ""}, "a name of a-z"),
    ],
)
def test_an_address_that_no_client_takes_is_refused_without_its_password(variables: dict[str, str], needs: str) -> None:
    with pytest.raises(SettingError, match=needs) as wrong:
        StoreSettings.from_environment(variables)
    assert "secret" not in str(wrong.value)
    assert wrong.value.__cause__ is None


@pytest.mark.parametrize("memory", ["2", "2 gigabytes", "g"])
def test_an_amount_of_memory_needs_its_unit(memory: str) -> None:
    with pytest.raises(SettingError, match=r"HEADWATER_SPARK_MEMORY.*an amount of memory, such as 2g"):
        SparkSettings.from_environment({"HEADWATER_SPARK_MEMORY": memory})


def test_a_port_that_does_not_exist_is_refused() -> None:
    with pytest.raises(SettingError, match=r"HEADWATER_API_PORT.*between 1 and 65535"):
        ApiSettings.from_environment({"HEADWATER_API_PORT": "70000"})


@pytest.mark.parametrize("variables", EVERY)
def test_an_empty_variable_counts_as_not_set(variables: type[Variables]) -> None:
    empty = {variables.variable(field): "" for field in variables.model_fields if field not in variables.never_empty}
    assert variables.read(empty) == variables.read({})


def test_settings_made_in_code_read_no_variables_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "HEADWATER_PARTITIONS", "7")
    monkeypatch.setitem(os.environ, "HEADWATER_KAFKA_SECURITY", "TLS")
    assert LogVariables.read({}) == LogVariables()
    assert LogSettings.from_environment({"HEADWATER_MODULES": "listings"}) == LogSettings(modules=("listings",))
    assert KafkaSecurity.from_environment({}) == KafkaSecurity()


@pytest.mark.parametrize("variables", [*EVERY, StackVariables])
def test_settings_cannot_be_changed(variables: type[Variables]) -> None:
    with pytest.raises(ValueError, match="frozen"):
        setattr(variables(), next(iter(variables.model_fields)), "other")
