"""Kafka's jars and the compiled Java peer, in a cache outside the tree.

The cache is `$OTTLA_CACHE`, or else `ottla` in the user's cache folder. The name of a cached folder contains a hash of
its sources. A folder appears only when it is complete, even if several test processes need it at the same time. If
Java, Maven or the jars are not available, the test is skipped with a message that names what is missing; in continuous
integration (`CI` is set), it fails.
"""

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import pytest

SOURCES = Path(__file__).parents[2] / "tests" / "conformance" / "interop" / "kafka"
POM = SOURCES / "pom.xml"
APT_INSTALL = Path(__file__).parents[2] / "scripts" / "apt-install"
JAVA_RELEASE = "17"
# Two steps (install, download) fit into the time limit of a test.
STEP_TIMEOUT_S = 140


def kafka_libs() -> Path:
    """Return the folder with Kafka's jars and their dependencies."""
    return cached_folder(f"kafka-libs-{digest([POM])}", copy_jars)


def java_classes() -> Path:
    """Return the folder with the compiled Java peer."""
    libs = kafka_libs()
    return cached_folder(
        f"kafka-peer-{digest([POM, *java_sources()])}", lambda folder: compile_java(libs, folder, java_sources())
    )


def class_path() -> str:
    return f"{java_classes()}{os.pathsep}{kafka_libs()}/*"


@functools.cache
def java() -> Path:
    """Return the `java` of the same JDK as `javac`."""
    javac = find_javac()
    if javac is None:
        install("openjdk-17-jdk-headless")
        javac = find_javac()
    if javac is None:
        unavailable("a JDK of version 17 or newer (javac)")
    return javac.resolve().parent / "java"


def java_sources() -> list[Path]:
    return sorted(SOURCES.glob("*.java"))


def digest(files: Sequence[Path]) -> str:
    content_hash = hashlib.sha256()
    for file in files:
        content = file.read_bytes()
        content_hash.update(f"{file.name} {len(content)}\n".encode() + content)
    return content_hash.hexdigest()[:16]


def cached_folder(name: str, make: Callable[[Path], None]) -> Path:
    """Return the folder `name` of the cache. If it does not exist, fill it with `make`."""
    cache = cache_folder()
    folder = cache / name
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(prefix=f"{name}.", dir=cache) as temporary:
                content = Path(temporary) / "content"
                content.mkdir()
                make(content)
                content.rename(folder)
    return folder


def cache_folder() -> Path:
    if chosen := os.environ.get("OTTLA_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ottla"


def copy_jars(folder: Path, pom: Path = POM) -> None:
    java()  # Maven needs it too, and its error message is less clear
    maven = shutil.which("mvn")
    if maven is None:
        install("maven")
        maven = shutil.which("mvn")
    if maven is None:
        unavailable("Maven (mvn)")
    goal = "dependency:copy-dependencies"
    command = [maven, "-q", "-B", "-f", str(pom), goal, f"-DoutputDirectory={folder}", "-DincludeScope=runtime"]
    began = time.monotonic()
    problem = run(command)
    if problem is not None and time.monotonic() - began < STEP_TIMEOUT_S / 2:
        # A registry may be unreachable for a moment, and without -U Maven remembers what it did not find.
        problem = run([*command, "-U"])
    if problem is not None:
        unavailable(f"Kafka's jars, which Maven could not download: {problem}")


def compile_java(libs: Path, folder: Path, sources: Sequence[Path]) -> None:
    command = [
        str(java().parent / "javac"),
        "--release",
        JAVA_RELEASE,
        "-proc:none",
        "-cp",
        f"{libs}/*",
        "-d",
        str(folder),
    ]
    problem = run([*command, *map(str, sources)])
    if problem is not None:
        pytest.fail(f"the Java sources of the tests do not compile: {problem}", pytrace=False)


def find_javac() -> Path | None:
    """Return the compiler of `JAVA_HOME` or of the path, if it is new enough."""
    home = os.environ.get("JAVA_HOME")
    for path in (f"{home}/bin" if home else None, os.environ.get("PATH")):
        javac = shutil.which("javac", path=path) if path else None
        if javac and run([javac, "--release", JAVA_RELEASE, "-version"]) is None:
            return Path(javac)
    return None


def install(package: str) -> None:
    """Try to install a Debian package, one test process at a time. The caller checks whether it worked."""
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run([str(APT_INSTALL), package])


def run(command: Sequence[str]) -> str | None:
    """Run a command. Return None, or the error if it fails."""
    try:
        result = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=STEP_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if result.returncode == 0:
        return None
    return (result.stdout + result.stderr).strip()[-2000:] or f"exit {result.returncode}"


def unavailable(requirement: str) -> NoReturn:
    message = f"comparing with Kafka's own classes needs {requirement}"
    if os.environ.get("CI"):
        pytest.fail(message, pytrace=False)
    pytest.skip(message)
