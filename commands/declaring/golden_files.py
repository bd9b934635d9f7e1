"""Golden files: one event per released version, `<event type>/<version>.json`. Add files, never change them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from headwater.commands.declaring.personal import PersonalField
from headwater.eventlog.hidden_values import error_text
from headwater.eventlog.personal.sealed_text import is_sealed

if TYPE_CHECKING:
    from headwater.commands.declaring.aggregate import Event


class GoldenFiles:
    """The paths and contents of golden files.

    folder: for the files of all events; None: `golden/` beside the module that declares the event.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    def of(self, event: type[Event], event_type: str) -> Path:
        """The folder with the files of the versions that were recorded under this type."""
        if self._folder is not None:
            return self._folder / event_type
        file = getattr(sys.modules.get(event.__module__), "__file__", None)
        if file is None:
            raise ValueError(f'the module of "{event.type}" has no file: name the folder of its golden files')
        return Path(file).parent / "golden" / event_type

    def path(self, event: type[Event], version: int) -> Path:
        """The file of one version."""
        return self.of(event, event.history.type_of(version)) / f"{version}.json"

    def versions(self, event: type[Event]) -> set[int]:
        """The versions of an event that have a file."""
        folders = (self.of(event, name) for name in event.history.types)
        return {int(file.stem) for folder in folders for file in folder.glob("*.json")}

    def read(self, event: type[Event], version: int) -> dict[str, Any]:
        """The data of one version, as it was recorded; raises ValueError if the file is not a JSON object."""
        data = orjson.loads(self.path(event, version).read_bytes())
        if not isinstance(data, dict):
            raise ValueError(f"{self.path(event, version)} is not a JSON object: write the fields of the event")
        return data

    def write(self, event: type[Event], version: int, data: Mapping[str, Any]) -> None:
        """Add the file of one version."""
        path = self.path(event, version)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(orjson.dumps(data, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def _opened(field: PersonalField, value: Any, _: str) -> Any:
    return field.erased_as if is_sealed(value) else value


def unreadable_version(event: type[Event]) -> str:
    """Why one of the golden files of an event is not read as a valid event, with what to do; empty if all are.

    Only of files beside the module, which are not there if the package was built without them.
    """
    files = GoldenFiles()
    try:
        versions = files.versions(event)
    except ValueError:  # its module has no file
        return ""
    for version in sorted(versions & {*range(1, event.version + 1)}):
        try:
            data = files.read(event, version)
            if version < event.version:
                data = event.history.upcast(version, data)
            if event.sealed_fields is not None:
                data = event.sealed_fields.changed(data, _opened)
            event.model_validate_json(orjson.dumps(data))
        except ValueError as error:  # pydantic's are, too
            what = (
                "correct its history"
                if version < event.version
                else "its fields have changed, so raise its version, and say in its history what older data becomes; "
                "or, if it was never released, delete the file"
            )
            return f"{files.path(event, version)} is no valid event any more: {error_text(error)}: {what}"
    return ""
