"""Commands that benches run and time: `replay`, and the loop by hand."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping

from headwater.eventlog.settings import LogSettings
from headwater.projections.settings import StoreSettings
from tests.bench._deployment import ROOT

BY_HAND = [sys.executable, "-m", "tests.bench._replay_in_python"]
"""The loop by hand."""


def rebuilding(*words: str) -> list[str]:
    """The command that rebuilds these views, or --all."""
    return [sys.executable, "-m", "headwater.replay", "rebuild", *words, "--json"]


def environment(settings: LogSettings, stores: StoreSettings, modules: str) -> dict[str, str]:
    """What points a command at a deployment with these modules."""
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "HEADWATER_KAFKA": settings.bootstrap,
        "HEADWATER_ENVIRONMENT": settings.environment,
        "HEADWATER_PARTITIONS": str(settings.partitions),
        "HEADWATER_STATE": str(settings.state),
        "HEADWATER_POSTGRES": stores.postgres,
        "HEADWATER_ELASTICSEARCH": stores.elasticsearch,
        "HEADWATER_VALKEY": stores.valkey,
        "HEADWATER_MODULES": modules,
    }


def command(words: list[str], env: Mapping[str, str]) -> tuple[float, bytes]:
    """Run it; returns the seconds that it took, and its standard output."""
    began = time.monotonic()
    done = subprocess.run(words, env=env, cwd=ROOT, check=False, capture_output=True)
    seconds = time.monotonic() - began
    if done.returncode:
        raise RuntimeError(done.stderr.decode()[-2000:])
    return seconds, done.stdout
