"""A process serves its metrics on a port of its own, or says why it cannot."""

from __future__ import annotations

import socket
import subprocess
import sys

import httpx
import pytest

from headwater.commands.handling.command_task import count_commands
from headwater.commands.owning.ownership import PARTITIONS, transaction
from headwater.compose.ports import free_port
from headwater.eventlog.errors import Fenced, SettingError
from headwater.eventlog.programs.metrics import REGISTRY, serve_metrics
from tests.support.waiting import eventually

SERVES = """
import sys
from headwater.eventlog.programs.metrics import serve_metrics
print(serve_metrics({"HEADWATER_METRICS_PORT": sys.argv[1]}, "handler", 1), flush=True)
sys.stdin.read()
"""


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def test_a_port_is_served_only_if_it_is_set() -> None:
    assert serve_metrics({}, "handler") is None
    first = free_port() - 1
    serves = [sys.executable, "-c", SERVES, str(first)]
    with subprocess.Popen(serves, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == f"{first + 1}\n"
            text = eventually(lambda: httpx.get(f"http://127.0.0.1:{first + 1}/metrics", trust_env=False).text)
            assert 'headwater_process_info{process="handler",version="' in text
            assert "process_cpu_seconds_total" in text
            assert "_created" not in text
        finally:
            process.kill()


@pytest.mark.parametrize("port", ["0", "65536", "x", "-1"])
def test_a_wrong_port_is_refused(port: str) -> None:
    with pytest.raises(SettingError, match="HEADWATER_METRICS_PORT"):
        serve_metrics({"HEADWATER_METRICS_PORT": port}, "handler")


def test_a_port_that_is_taken_or_an_address_that_is_not_here_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingError, match=f"port {port} of 127.0.0.1 is free for handler"):
            serve_metrics({"HEADWATER_METRICS_PORT": str(port - 1)}, "handler", 1)
    with pytest.raises(SettingError, match="each process has one of its own"):
        serve_metrics({"HEADWATER_METRICS_PORT": "65535"}, "handler", 1)
    for host in ("192.0.2.1", "host.invalid", "x" * 300):
        with pytest.raises(SettingError, match="is free for handler"):
            serve_metrics({"HEADWATER_METRICS_PORT": str(free_port()), "HEADWATER_METRICS_HOST": host}, "handler")


def test_transactions_are_counted_by_how_they_end() -> None:
    def ended(outcome: str) -> float:
        return value("headwater_transactions_total", role="measured", outcome=outcome)

    with PARTITIONS.labels("measured").track_inprogress():
        assert value("headwater_partitions_owned", role="measured") == 1
        with transaction("measured", 3):
            pass
        with pytest.raises(Fenced), transaction("measured", 5):
            raise Fenced(1)
        with pytest.raises(RuntimeError), transaction("measured", 5):
            raise RuntimeError
    assert [ended(each) for each in ("committed", "fenced", "failed")] == [1, 1, 1]
    assert value("headwater_partition_records_total", role="measured") == 3
    assert value("headwater_transaction_seconds_count", role="measured") == 1
    assert value("headwater_partitions_owned", role="measured") == 0


def test_commands_are_counted_by_type_and_outcome() -> None:
    count_commands([("measured.make", "accepted"), ("measured.make", "rejected"), ("measured.make", "accepted")])
    counted = [
        value("headwater_commands_total", type="measured.make", outcome=each) for each in ("accepted", "rejected")
    ]
    assert counted == [2, 1]
