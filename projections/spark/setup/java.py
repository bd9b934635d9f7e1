"""Finds the Java that Spark needs, or says which command installs it (standard library only)."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

MIN_JAVA = 17
SUPPORTED_PLATFORMS = ("linux", "darwin")

_INSTALL = {
    "apt-get": "sudo apt-get install -y openjdk-17-jre-headless",
    "dnf": "sudo dnf install -y java-21-openjdk-headless",
    "brew": "brew install openjdk@21",
}


class JavaError(RuntimeError):
    """No Java on this machine can run Spark; the message says what is missing and how to get it."""


def find_java() -> Path:
    """The system Java that Spark will start: that of `JAVA_HOME`, else the first `java` on the path.

    Raises JavaError if there is none, it is older than 17, or the platform is not supported.
    """
    if sys.platform not in SUPPORTED_PLATFORMS:
        raise JavaError(f"platform '{sys.platform}' is not supported; use Linux, macOS, or Linux under WSL 2")
    java = locate_java()
    major = java_major(java)
    if major < MIN_JAVA:
        raise JavaError(f"'{java}' is Java {major}; Spark needs Java {MIN_JAVA} or newer; {_how_to_install()}")
    return java


def java_major(java: Path) -> int:
    """The feature release of a Java executable: 8 for 1.8.0_402, 17 for 17.0.15."""
    try:
        ran = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise JavaError(f"'{java}' does not run ({error}); {_how_to_install()}") from error
    return parse_major(ran.stderr + ran.stdout)


def parse_major(version_output: str) -> int:
    """The feature release in the output of `java -version`."""
    version_match = re.search(r'version "(?:1\.)?(\d+)', version_output)
    if version_match is None:
        raise JavaError(f"no version in the output of 'java -version': {version_output.strip()[:200]!r}")
    return int(version_match.group(1))


def locate_java() -> Path:
    """The `java` that Spark will start, of any version; raises JavaError if there is none."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):  # also for a name that is too long
            raise JavaError(f"JAVA_HOME is {home!r}, but it has no bin/java; unset JAVA_HOME or correct it")
        return java
    on_path = shutil.which("java")
    if on_path is None:
        raise JavaError(f"no Java found; Spark needs Java {MIN_JAVA} or newer; {_how_to_install()}")
    return Path(on_path)


def _how_to_install() -> str:
    for tool, command in _INSTALL.items():
        if shutil.which(tool):
            return f"install it with: {command}"
    return f"install a Java {MIN_JAVA} runtime with your system's package manager, or set JAVA_HOME"


if __name__ == "__main__":
    try:
        find_java()
    except JavaError as missing:
        sys.exit(f"error: {missing}")
