"""The jars of Spark's own Kafka connector, fetched once and kept beside Kafka's."""

import shutil
from pathlib import Path

from bench.harness.kafka_jars import cached, digest, install, java, run, unavailable

POM = Path(__file__).parent / "connector" / "pom.xml"


def connector_jars() -> str:
    """Their paths, as Spark's setting `spark.jars` wants them."""
    folder = cached(f"spark-connector-{digest([POM])}", _copy)
    return ",".join(str(each) for each in sorted(folder.glob("*.jar")))


def _copy(folder: Path) -> None:
    java()  # Maven needs it too, and says so less clearly
    if shutil.which("mvn") is None:
        install("maven")
    maven = shutil.which("mvn")
    if maven is None:
        unavailable("Maven (mvn)")
    goal = "dependency:copy-dependencies"
    problem = run([maven, "-q", "-B", "-f", str(POM), goal, f"-DoutputDirectory={folder}", "-DincludeScope=runtime"])
    if problem is not None:
        unavailable(f"the jars of Spark's connector, which Maven could not fetch: {problem}")
