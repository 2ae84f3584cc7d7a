"""Pipelines as users have them: a project, a topic to read, the command line."""

import json
import random
import re
from pathlib import Path
from typing import Any

from tests.spark.clusters import Cluster
from tests.support.commands import run_ottla


class Project:
    """A pipeline's folder and the topic that it reads."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self.folder = folder
        self.cluster = cluster
        self.topic = cluster.new_topic()
        cluster.create(f"{self.topic}-alerts", 2)
        done = run_ottla("pipeline", "init", str(folder), "--topic", self.topic, "-b", cluster.address)
        assert done.returncode == 0, done.stderr
        self.sent = 0

    def send(self, count: int) -> None:
        """Send orders. Every tenth is malformed, every seventh has no price, and every fifth is expensive."""
        producer = self.cluster.producer()
        random.seed(self.sent)
        for number in range(self.sent, self.sent + count):
            order = {"id": number, "customer": f"customer-{number % 4}", "price": 950.0 if number % 5 == 0 else 10.5}
            if number % 7 == 0:
                del order["price"]
            value = b"no order" if number % 10 == 0 else json.dumps(order).encode()
            producer.produce(self.topic, value, partition=number % 3)
        assert producer.flush(30) == 0
        self.sent += count

    def good(self) -> list[int]:
        return [number for number in range(self.sent) if number % 10 and number % 7]

    def run(self, *arguments: str, environment: dict[str, str] | None = None) -> list[dict[str, Any]]:
        """Run the pipeline successfully; return the events."""
        done = run_ottla(
            "pipeline", "run", str(self.folder), "--json", *arguments, environment=environment, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def fail(self, *arguments: str) -> str:
        """Run the pipeline, expect it to fail, and return its error, which must be one line."""
        done = run_ottla("pipeline", "run", str(self.folder), *arguments, timeout=300)
        assert done.returncode == 1, done.stdout
        assert done.stderr.count("\n") == 1, done.stderr
        assert not re.search(r"org\.apache|\bjava\.|Traceback|SQLSTATE", done.stderr), done.stderr
        return done.stderr.strip()

    def define(self, name: str, text: str) -> Path:
        file = self.folder / "transformations" / name
        file.write_text(text)
        return file

    def alerts(self) -> list[int]:
        return sorted(json.loads(row["value"])["id"] for row in self.cluster.consume(f"{self.topic}-alerts"))


def last(events: list[dict[str, Any]], kind: str, flow: str) -> dict[str, Any]:
    return [event for event in events if event["event"] == kind and event.get("flow") == flow][-1]
