"""The process of Elasticsearch: starts a JVM with a node, and closes the node on SIGTERM."""

import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from headwater.compose.parts.elasticsearch import HEAP
from headwater.eventlog.programs.stopping import set_by_signal

JVM_OPTIONS = (
    *HEAP,
    "-XX:+UseG1GC",
    "-XX:+ExitOnOutOfMemoryError",
    "--enable-native-access=ALL-UNNAMED",
    "--add-modules=jdk.net",
    "-Des.distribution.type=tar",
    "-Dlog4j2.disable.jmx=true",
    "-Dlog4j.shutdownHookEnabled=false",
    "-Djava.awt.headless=true",
)


def main() -> None:
    """Run the node described by HEADWATER_NODE until SIGTERM or the JVM's end."""
    order = json.loads(os.environ["HEADWATER_NODE"])
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: set_by_signal(stop))
    port, secret, jvm = launch_gateway(
        classpath=os.environ["CLASSPATH"],
        java_path=order["java"],
        javaopts=[*order["options"], *JVM_OPTIONS],
        redirect_stdout=sys.stdout,
        redirect_stderr=sys.stderr,
        die_on_exit=True,  # the JVM ends whenever this process does
        enable_auth=True,  # otherwise every user of this machine could run code in the JVM
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=secret, auto_convert=True))
    node = _start_node(gateway, order["settings"], Path(order["home"]))
    while not stop.wait(0.5):
        if jvm.poll() is not None:
            sys.exit(f"the JVM ended with status {jvm.returncode}")
    node.close()
    gateway.shutdown()
    jvm.stdin.close()  # which ends it
    jvm.wait()  # it may still write an archive of its classes


def _start_node(gateway: JavaGateway, settings: Mapping[str, str], home: Path) -> Any:
    """The same as Elasticsearch's own launcher, without the command line, the key store and the security manager."""
    java, elastic = gateway.jvm.java, gateway.jvm.org.elasticsearch
    builder = elastic.common.settings.Settings.builder()
    for name, value in settings.items():
        builder.put(name, value)
    built = builder.build()
    elastic.common.logging.LogConfigurator.configureESLogging()
    elastic.common.logging.LogConfigurator.configureWithoutConfig(built)
    environment = elastic.env.Environment(built, java.io.File(str(home / "config")).toPath())
    modules = java.io.File(str(home / "modules")).toPath()
    bundles = elastic.plugins.PluginsLoader.loadModulesBundles(modules, False)
    loader = elastic.plugins.PluginsLoader.createPluginsLoader(bundles, java.util.Set.of(), java.util.Map.of(), False)
    return elastic.node.Node(environment, loader).start()


if __name__ == "__main__":
    main()
