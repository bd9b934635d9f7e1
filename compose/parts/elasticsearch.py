"""Elasticsearch 9.5.3: one node inside a small Python process that drives its JVM."""

import json
import os
import shutil
import sys
import zipfile
from collections.abc import Sequence
from http.client import HTTPConnection
from pathlib import Path

from headwater.compose.errors import ComposeError
from headwater.compose.parts.installation import archive_options, java
from headwater.compose.probes import http_problem
from headwater.compose.settings import HOST, StackSettings
from headwater.eventlog.programs.modules import SAFE_PATH
from headwater.projections.supervision.process import ProcessSpec

_PLUGIN = "transport-netty4"
HEAP = ("-Xms512m", "-Xmx1g")
SETTINGS = {
    "cluster.name": "headwater",
    "node.name": "local",
    "discovery.type": "single-node",
    # A developer's nearly full disk would make every index read-only, and let no segments be merged.
    "cluster.routing.allocation.disk.threshold_enabled": "false",
    "indices.merge.disk.check_interval": "0s",
}


def spec(settings: StackSettings, jars: Sequence[Path]) -> ProcessSpec:
    """How Elasticsearch runs; `jars` holds the server and its transport plugin."""
    home = settings.state / "elasticsearch"
    server, plugin = split_jars(jars)
    node_settings = {
        **SETTINGS,
        "path.home": str(home),
        "path.data": str(home / "data"),
        "path.logs": str(home / "logs"),
        "logger.level": "INFO",
        "http.host": HOST,
        "http.port": str(settings.ports.elasticsearch),
        "http.type": "netty4",
        "transport.host": HOST,
        "transport.port": str(settings.ports.elasticsearch_transport),
        "transport.type": "netty4",
    }
    environment = {
        "CLASSPATH": os.pathsep.join(map(str, server)),
        "HEADWATER_NODE": json.dumps(
            {
                "java": str(java()),
                "options": archive_options("elasticsearch", jars),
                "home": str(home),
                "settings": node_settings,
            }
        ),
    }
    return ProcessSpec(
        name="elasticsearch",
        argv=(sys.executable, *SAFE_PATH, "-m", "headwater.compose.parts.elasticsearch_node"),
        env=environment,
        log=settings.logs / "elasticsearch.log",
        prepare=lambda: prepare(home, plugin),
        probe=lambda: probe(settings.ports.elasticsearch),
        stop_timeout_s=30.0,
    )


def split_jars(jars: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Those of the server's classpath, and those of its transport: in both, a jar is refused ("jar hell")."""
    plugin = [jar for jar in jars if jar.name.startswith((f"{_PLUGIN}-", "netty-"))]
    return [jar for jar in jars if jar not in plugin], plugin


def prepare(home: Path, plugin: Sequence[Path]) -> None:
    """Create the folders that a node expects, with the transport module unpacked from its jar."""
    for name in ("config", "data", "logs"):
        (home / name).mkdir(parents=True, exist_ok=True)
    archive = next((jar for jar in plugin if jar.name.startswith(f"{_PLUGIN}-")), None)
    if archive is None:
        raise ComposeError(
            f"no jar of '{_PLUGIN}' in group 'elasticsearch' of the jar lock; run 'headwater stack lock'"
        )
    module = home / "modules" / _PLUGIN
    shutil.rmtree(module, ignore_errors=True)
    module.mkdir(parents=True)
    prefix = f"META-INF/es-plugins/{_PLUGIN}/"
    with zipfile.ZipFile(archive) as jar:
        for entry in jar.namelist():
            if entry.startswith(prefix) and not entry.endswith("/"):
                target = module / entry.removeprefix(prefix)
                target.parent.mkdir(parents=True, exist_ok=True)
                content = jar.read(entry)
                if entry.endswith("plugin-descriptor.properties"):
                    # the jars are on a classpath, where Java has no named modules
                    lines = [line for line in content.splitlines() if not line.startswith(b"modulename=")]
                    content = b"\n".join(lines)
                target.write_bytes(content)
    for jar_path in plugin:
        (module / jar_path.name).symlink_to(jar_path)


def probe(port: int) -> str | None:
    """None if the server can serve requests, else the reason."""
    connection = HTTPConnection(HOST, port, timeout=3)
    return http_problem(connection, "/_cluster/health?wait_for_status=yellow&timeout=1s")
