"""Waiting for all that a loop of asyncio can do by itself, however slow the machine is."""

from __future__ import annotations

import asyncio


async def settled() -> None:
    """Let everything run that can run: then nothing but this is ready in the loop."""
    await asyncio.sleep(0)
    while asyncio.get_running_loop()._ready:  # type: ignore[attr-defined]  # noqa: ASYNC110
        await asyncio.sleep(0)
