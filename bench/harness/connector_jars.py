"""The jars of Spark's own Kafka connector, downloaded once into the cache of Kafka's jars."""

import shutil
from pathlib import Path

from bench.harness.kafka_jars import cached_folder, digest, install, java, run, unavailable

POM = Path(__file__).parent / "connector" / "pom.xml"


def connector_jars() -> str:
    """Return the paths in the format of the setting `spark.jars`."""
    folder = cached_folder(f"spark-connector-{digest([POM])}", _copy)
    return ",".join(str(jar) for jar in sorted(folder.glob("*.jar")))


def _copy(folder: Path) -> None:
    java()  # Maven needs it too, and its error message is less clear
    if shutil.which("mvn") is None:
        install("maven")
    maven = shutil.which("mvn")
    if maven is None:
        unavailable("Maven (mvn)")
    goal = "dependency:copy-dependencies"
    problem = run([maven, "-q", "-B", "-f", str(POM), goal, f"-DoutputDirectory={folder}", "-DincludeScope=runtime"])
    if problem is not None:
        unavailable(f"the jars of Spark's connector, which Maven could not download: {problem}")
