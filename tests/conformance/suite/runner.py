"""Runs classes of Kafka's tests in a JVM, and the clusters that they request."""

import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree
from zipfile import ZipFile

from bench.harness.kafka_jars import cached_folder, compile_java, copy_jars, digest, java

from tests.conformance.suite.clusters import ClusterFailed, ProcessCluster, Subject

SOURCES = Path(__file__).parent / "kafka"
POM = SOURCES / "pom.xml"
CLUSTER_TEST = b"Lorg/apache/kafka/common/test/api/ClusterTe"
"""The common prefix of `@ClusterTest`, `@ClusterTests` and `@ClusterTemplate` in a class's constants."""
LOGGING = """Configuration:
  Appenders: {Console: {name: out, PatternLayout: {pattern: "[%d] %p %m (%c)%n"}}}
  Loggers: {Root: {level: ERROR, AppenderRef: {ref: out}}}
"""


class Result(NamedTuple):
    """The result of a test."""

    test: str
    """Class, method and variant."""
    failure: str | None
    """The first line of the error, or None if the test passed."""


def libraries() -> Path:
    """Return the folder with the jars of the suite."""
    return cached_folder(f"kafka-suite-{digest([POM])}", lambda folder: copy_jars(folder, POM))


def class_path() -> str:
    libs, sources = libraries(), sorted(SOURCES.glob("*.java"))
    shim = cached_folder(
        f"kafka-suite-shim-{digest([POM, *sources])}", lambda folder: compile_java(libs, folder, sources)
    )
    return f"{shim}{os.pathsep}{libs}/*"


def full_names(classes: Iterable[str]) -> list[str]:
    """Return the class names with their packages, which some names already have."""
    names = list(classes)
    available = cluster_tests() if any("." not in name for name in names) else {}
    missing = [name for name in names if "." not in name and name not in available]
    if missing:
        raise ClusterFailed(f"no test class that uses a cluster is named {', '.join(missing)}")
    return [name if "." in name else available[name] for name in names]


def cluster_tests() -> dict[str, str]:
    """Return the test classes in the jars that use a cluster: simple name → full name."""
    full: dict[str, str] = {}
    for jar in sorted(libraries().glob("kafka*-test.jar")):
        with ZipFile(jar) as classes:
            for entry in classes.namelist():
                name = entry.removesuffix(".class").replace("/", ".")
                if entry.endswith("Test.class") and "$" not in entry and CLUSTER_TEST in classes.read(entry):
                    full[name.rpartition(".")[2]] = name
    return full


def run_classes(
    classes: list[str], subject: Subject, *, per_test_s: int = 120, only: str = "", keep: Path | None = None
) -> list[Result]:
    """Run test classes, or only their methods that match a regular expression, and return the results.

    `keep` is a folder for reports and the logs of nodes.
    """
    with tempfile.TemporaryDirectory(prefix="ottla-suite-") as folder, _ClusterServer(subject, keep) as clusters:
        work = Path(folder)
        (work / "log4j2.yaml").write_text(LOGGING)
        command = [
            str(java()), "-Xmx1500m",
            f"-Dottla.suite={clusters.port}",
            f"-Djava.io.tmpdir={work}",
            f"-Dlog4j2.configurationFile={work / 'log4j2.yaml'}",
            "-Djunit.jupiter.extensions.autodetection.enabled=true",
            f"-Djunit.jupiter.execution.timeout.default={per_test_s}s",
            "-cp", class_path(), "org.junit.platform.console.ConsoleLauncher", "execute",
            "--disable-banner", "--disable-ansi-colors", "--details=testfeed", f"--reports-dir={work / 'reports'}",
        ]  # fmt: skip
        if only:
            command += ["--include-methodname", f".*(?:{only}).*"]
        for name in classes:
            command += ["-c", name]
        subprocess.run(command, check=False)
        if keep is not None:
            for report in (work / "reports").glob("TEST-*.xml"):
                keep.mkdir(parents=True, exist_ok=True)
                shutil.copy(report, keep / f"{classes[0]}{report.name.removeprefix('TEST-junit')}")
        return list(_read_results(work / "reports"))


def _read_results(reports: Path) -> Iterator[Result]:
    for report in sorted(reports.glob("TEST-*.xml")):
        for case in ElementTree.parse(report).iter("testcase"):
            if case.find("skipped") is not None:
                continue
            problem = case.find("failure") if case.find("failure") is not None else case.find("error")
            name = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"
            yield Result(name, None if problem is None else (problem.get("message") or problem.get("type") or "failed"))


class _ClusterServer:
    """Serves the requests of tests: `start DIR`, `stop DIR`, `stop-broker DIR ID`, `start-broker DIR ID`."""

    def __init__(self, subject: Subject, keep: Path | None) -> None:
        self._subject = subject
        self._keep = keep
        self._clusters: dict[str, ProcessCluster] = {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> "_ClusterServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for cluster in self._clusters.values():
            cluster.stop()
        if self._keep is not None:
            for folder in self._clusters:
                shutil.copytree(folder, self._keep / Path(folder).name, dirs_exist_ok=True)

    def _serve(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        with connection, connection.makefile("rw", encoding="utf-8", newline="\n") as lines:
            for line in lines:
                try:
                    self._handle(*line.split())
                    answer = "ok"
                except (ClusterFailed, OSError, KeyError, subprocess.SubprocessError) as error:
                    answer = repr(error).replace("\n", " ")
                lines.write(answer + "\n")
                lines.flush()

    def _handle(self, action: str, folder: str, broker: str = "") -> None:
        if action == "start":
            self._clusters[folder] = ProcessCluster(Path(folder), self._subject)
        cluster = self._clusters[folder]
        match action:
            case "start":
                cluster.start()
            case "stop":
                cluster.stop()
            case "stop-broker":
                cluster.stop_broker(int(broker))
            case "start-broker":
                cluster.start_broker(int(broker))
