"""Where the read sides of a deployment keep the state of stream views: a rebuild from elsewhere could not go on."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headwater.eventlog.settings import LogSettings
from headwater.projections.generations.registry.state_files import Remote, state_folder

NOTE_S: Final = 60.0
"""Between two notes of a running read side."""
FRESH_S: Final = 10 * NOTE_S
"""A read side that was not seen for so long does not run: what is built elsewhere meanwhile hinders nobody."""


@dataclass(frozen=True)
class StatePlace:
    """A folder with the state of stream views. id: in a file of the folder, so it is the same on any machine and path.

    place: host and path, for people. age_s: since its read side was last seen.
    """

    id: str
    place: str
    age_s: float = 0.0

    @property
    def is_fresh(self) -> bool:
        """Whether its read side probably runs."""
        return self.age_s < FRESH_S


def known_id(settings: LogSettings) -> str | None:
    """The id of this process's folder; None if no read side has ever used it. Raises OSError."""
    try:
        return (state_folder(settings) / "id").read_text()
    except FileNotFoundError:
        return None


def own_place(settings: LogSettings) -> StatePlace:
    """The folder of this process, which gets an id if it has none. Raises OSError."""
    folder = state_folder(settings)
    file = folder / "id"
    if isinstance(file, Remote):
        if not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            file.write_text(uuid.uuid4().hex)  # of two processes, the last one decides; each reads it again below
        return StatePlace(file.read_text(), str(folder))
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f"{file.name}.{os.getpid()}.part")
        part.write_text(uuid.uuid4().hex)
        try:
            os.link(part, file)
        except FileExistsError:
            pass  # another process has made its id meanwhile: both read that one below, and a rename would replace it
        except OSError:  # some network disks have no links
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)
    return StatePlace(file.read_text(), f"{socket.gethostname()}:{settings.checkpoints or settings.state.absolute()}")


def others(settings: LogSettings, places: Sequence[StatePlace]) -> list[StatePlace]:
    """The folders of other read sides that probably run, the last seen first. Raises OSError."""
    own = known_id(settings)
    return sorted((each for each in places if each.is_fresh and each.id != own), key=lambda each: each.age_s)


def why_not_here(settings: LogSettings, places: Sequence[StatePlace]) -> str | None:
    """Why a stream view must not be built with the folder of this process, with what to do; None if it may.

    Raises OSError.
    """
    own = known_id(settings)
    if any(each.is_fresh and each.id == own for each in places) or not (running := others(settings, places)):
        return None
    first = running[0]
    variable = "HEADWATER_CHECKPOINTS" if settings.checkpoints else "HEADWATER_STATE"
    return (
        f"its query could not continue: the running read side keeps the state of stream views at {first.place}, and "
        f"this process at {settings.checkpoints or settings.state.absolute()}: run this there, with its {variable}; or "
        f"stop that read side for good, and run this again after {FRESH_S / 60:.0f} minutes"
    )
