"""Run Kafka Streams' own smoke test with exactly_once_v2 on three nodes, while its processors are killed.

    python -m tests.conformance.clients.smoke            # on three Ottla nodes
    python -m tests.conformance.clients.smoke --kafka    # on three Apache Kafka nodes

The driver writes records and compares counts and sums; it prints SUCCESS if every record was processed once. Two
processors are killed while they work, and each is replaced. All logs are in `build/smoke`.
"""

import argparse
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from bench.harness.kafka_jars import java
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.conformance.clients.clusters import running_cluster
from tests.conformance.suite.clusters import Subject, write_properties
from tests.conformance.suite.runner import LOGGING, class_path

SMOKE = "org.apache.kafka.streams.tests.StreamsSmokeTest"
TOPICS = (
    *("data", "fk", "echo", "min", "min-suppressed", "min-raw", "max", "sum", "sws-raw", "sws-suppressed"),
    *("dif", "cnt", "avg", "wcnt", "tagg"),
)
NODES = 3
TIMEOUT_S = 120


class SmokeFailed(Exception):
    """The test did not progress in time."""


class Part:
    """The driver or a processor: a process and its output."""

    def __init__(self, folder: Path, name: str, properties: Path, action: str) -> None:
        self.name = name
        self._log_path = folder / f"{name}.log"
        logging = folder / "log4j2.yaml"
        logging.write_text(LOGGING)
        command = [
            *(str(java()), "-Xmx400m", "-XX:+UseSerialGC", f"-Dlog4j2.configurationFile={logging}"),
            *("-cp", class_path(), SMOKE, str(properties), action),
        ]
        with self._log_path.open("wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)

    def output(self) -> str:
        return self._log_path.read_text(errors="replace")

    def wait_for(self, text: str, timeout_s: float = TIMEOUT_S) -> None:
        deadline = time.monotonic() + timeout_s
        while text not in self.output():
            if self.process.poll() is not None and text not in self.output():
                raise SmokeFailed(f"{self.name} exited before it printed {text!r}")
            if time.monotonic() > deadline:
                raise SmokeFailed(f"{self.name} did not print {text!r} within {timeout_s:g} s")
            time.sleep(0.1)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def run_smoke_test(address: str, folder: Path) -> str:
    """Run the driver and three processors one after the other, and return the driver's output."""
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.create_topics([NewTopic(topic, 5, NODES) for topic in TOPICS]).values():
        future.result(TIMEOUT_S)

    def start_part(name: str, action: str) -> Part:
        settings = folder / f"{name}.properties"
        write_properties(
            settings,
            {
                "bootstrap.servers": address,
                "processing.guarantee": "exactly_once_v2",
                "state.dir": str(folder / f"state-{name}"),
                "session.timeout.ms": "10000",
            },
        )
        return Part(folder, name, settings, action)

    with ExitStack() as ending:
        processor = start_part("processor-1", "process")
        ending.callback(processor.kill)
        processor.wait_for("REBALANCING -> RUNNING")
        driver = start_part("driver", "run")
        ending.callback(driver.kill)
        for number in (2, 3):
            processor.wait_for("processed")
            if "Result Verification" in driver.output():
                raise SmokeFailed("the driver finished before a processor was killed")
            print(f"killing {processor.name}, which has started work", flush=True)
            processor.kill()
            processor = start_part(f"processor-{number}", "process")
            ending.callback(processor.kill)
            processor.wait_for("REBALANCING -> RUNNING")
        processor.wait_for("processed")
        try:
            driver.process.wait(10 * TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise SmokeFailed("the driver did not exit") from error
        return driver.output()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance.clients.smoke", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--kafka", action="store_true", help="run on Apache Kafka nodes")
    arguments = parser.parse_args()
    folder = Path("build/smoke").resolve() / ("kafka" if arguments.kafka else "ottla")
    subject = Subject.kafka(class_path()) if arguments.kafka else Subject.ottla()
    with running_cluster(folder, subject, nodes=NODES) as address:
        try:
            output = run_smoke_test(address, folder)
        except SmokeFailed as error:
            output = str(error)
    print(output[output.find("Result Verification") :] if "Result Verification" in output else output)
    return 0 if "SUCCESS" in output.split() else 1


if __name__ == "__main__":
    sys.exit(main())
