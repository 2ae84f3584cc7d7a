"""Runs a fire: three nodes, a steady flow of records, a driver with two queries, and one failure after the other.

Failures of tasks, of commits and of the driver are traps (`traps.py`). This module kills or stops nodes: any of them,
or the transaction coordinator of a query's driver. A failure counts once it has happened.
"""

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench.harness.ports import free_ports
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ottla.cli.local_cluster import LocalCluster, LocalNode
from ottla.client.cluster import Cluster
from ottla.spark.connector.coordinators import TRANSACTION, find_coordinator
from tests.spark.connector.fire.checker import Row, check_rows, groups_of
from tests.spark.connector.fire.driver import BATCH_RECORDS, GROUP, INPUT, OUTPUTS, STOP, checkpoint
from tests.spark.connector.fire.traps import COMMIT_MOMENTS, FOLDER, TASK_MOMENTS, arm, kill_driver

ROOT = Path(__file__).parents[4]
KEYS = 20
PARTITIONS = 4
STRIKE_S, SETTLE_S = 60.0, 180.0
LEAD_RECORDS = 10 * BATCH_RECORDS
KINDS = {"task": 10, "commit": 8, "driver": 2, "broker killed": 2, "broker stopped": 1, "coordinator killed": 2}
"""The relative frequency of each kind of failure."""


class Outcome(NamedTuple):
    """The result of a fire."""

    struck: Counter[str]
    missed: Counter[str]
    sent: int
    restarts: int
    seconds: float
    problems: list[str]

    def report(self) -> str:
        lines = [f"{sum(self.struck.values())} failures in {self.seconds:.0f} s, {self.sent:,} records sent:"]
        lines += [f"  {count:4d}  {kind}" for kind, count in sorted(self.struck.items())]
        lines += [f"  {count:4d}  {kind}: armed, but not sprung" for kind, count in sorted(self.missed.items())]
        lines.append(f"the driver was started {self.restarts + 1} times")
        return "\n".join([*lines, *(self.problems or ["every row was written once"])])


class Feeder(threading.Thread):
    """Sends numbered records until `finish`, at most `LEAD_RECORDS` ahead of the slower query."""

    def __init__(self, servers: str, planned: Callable[[], int]) -> None:
        super().__init__(daemon=True)
        self._planned = planned
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})
        self._done = threading.Event()
        self.problems: list[str] = []
        self.sent: list[Row] = []

    def run(self) -> None:
        while not self._done.wait(0.1):
            if len(self.sent) - self._planned() > LEAD_RECORDS:
                continue
            for _ in range(10):
                row = Row(f"key-{len(self.sent) % KEYS}", str(len(self.sent)))
                self._producer.produce(INPUT, row.value, row.key, on_delivery=self._note)
                self.sent.append(row)
            self._producer.poll(0)
        if left := self._producer.flush(60):
            self.problems.append(f"{left} records were not delivered")

    def finish(self) -> None:
        self._done.set()
        self.join()

    def _note(self, error: object, _: object) -> None:
        if error is not None:
            self.problems.append(f"a record was not delivered: {error}")


class Fire:
    """A fire. The seed chooses the failures and their order."""

    def __init__(self, folder: Path, *, seed: int, failures: int) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        self.folder = folder
        self.traps = folder / "traps"
        self.traps.mkdir(parents=True)
        self._chance = random.Random(seed)
        self._failures = failures
        self._cluster = LocalCluster(folder / "cluster", nodes=3, base_port=free_ports(6)[0], settings={})
        self._driver: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self._struck: Counter[str] = Counter()
        self._missed: Counter[str] = Counter()

    def run(self) -> Outcome:
        began_s = time.monotonic()
        try:
            self._prepare()
            feeder = Feeder(self._cluster.servers, self._planned)
            feeder.start()
            self._ensure_driver()
            while sum(self._struck.values()) + sum(self._missed.values()) < self._failures:
                self._fail()
            feeder.finish()
            problems = feeder.problems + self._settle(feeder.sent)
        finally:
            self._end_driver()
            self._cluster.stop()
            self._cluster.kill()
        seconds = time.monotonic() - began_s
        return Outcome(self._struck, self._missed, len(feeder.sent), self._starts - 1, seconds, problems)

    def _prepare(self) -> None:
        self._cluster.prepare()
        self._cluster.start()
        _wait(lambda: all(node.is_ready for node in self._cluster.nodes), "the nodes are ready")
        admin = AdminClient({"bootstrap.servers": self._cluster.servers, "log_level": 0})
        wanted = [
            NewTopic(name, PARTITIONS, 3, config={"min.insync.replicas": "2"}) for name in (INPUT, *OUTPUTS.values())
        ]
        for future in admin.create_topics(wanted).values():
            future.result()

    def _fail(self) -> None:
        kind = self._chance.choices(list(KINDS), list(KINDS.values()))[0]
        match kind:
            case "task":
                self._spring(self._chance.choice(TASK_MOMENTS), self._chance.choice(("raise", "kill")))
            case "commit":
                self._spring(self._chance.choice(COMMIT_MOMENTS), self._chance.choice(("raise", "kill")))
            case "driver":
                self._spring(self._chance.choice((*TASK_MOMENTS, *COMMIT_MOMENTS)), "kill the driver")
            case _:
                node = self._coordinator() if kind == "coordinator killed" else None
                self._lose(kind, node or self._chance.choice(self._cluster.nodes))
        self._ensure_driver()

    def _spring(self, moment: str, action: str) -> None:
        trap = arm(self.traps, moment, action)
        name = f"{action}: {moment}"
        deadline = time.monotonic() + STRIKE_S
        while trap.exists():
            self._ensure_driver()
            if time.monotonic() > deadline:
                trap.unlink(missing_ok=True)
                self._missed[name] += 1
                self._note(f"missed {name}")
                return
            time.sleep(0.02)
        self._struck[name] += 1
        self._note(name)

    def _lose(self, kind: str, node: LocalNode) -> None:
        """End a node and restart it after a while. The other nodes keep a majority."""
        assert node.process is not None, "all nodes are running"
        self._note(f"{kind}: node {node.number}")
        node.process.send_signal(signal.SIGTERM if kind == "broker stopped" else signal.SIGKILL)
        node.process.wait()
        time.sleep(self._chance.uniform(0.2, 3))
        node.start()
        _wait(lambda: node.is_ready, f"node {node.number} is back")
        self._struck[kind] += 1

    def _coordinator(self) -> LocalNode | None:
        """Return the transaction coordinator of one of the queries' drivers."""
        metadata = checkpoint(self.folder, self._chance.choice(list(OUTPUTS))) / "metadata"
        if not metadata.exists():
            return None
        query = json.loads(metadata.read_text())["id"]

        async def ask() -> int:
            async with Cluster(self._cluster.servers) as cluster:
                name = f"ottla-spark-{query}/driver"
                return await cluster.retry(lambda: find_coordinator(cluster, name, TRANSACTION))

        number = asyncio.run(ask())
        return next(node for node in self._cluster.nodes if node.number == number)

    def _planned(self) -> int:
        """Return how many records the slower query has planned."""
        return min(planned_records(checkpoint(self.folder, name)) for name in OUTPUTS)

    def _ensure_driver(self) -> None:
        if self._driver is not None and self._driver.poll() is None:
            return
        self._starts += 1
        environment = {**os.environ, FOLDER: str(self.traps), "PYTHONPATH": str(ROOT)}
        with (self.folder / "driver.log").open("ab") as log:
            self._driver = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.connector.fire.driver", str(self.folder), self._cluster.servers],
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _end_driver(self) -> None:
        (self.folder / STOP).touch()
        if self._driver is None:
            return
        try:
            self._driver.wait(60)
        except subprocess.TimeoutExpired:
            kill_driver(self.traps)
            self._driver.wait()

    def _settle(self, sent: list[Row]) -> list[str]:
        """Wait until the queries have caught up; return the problems that remain."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            self._ensure_driver()
            rows, groups = (read_committed(self._cluster.servers, topic) for topic in OUTPUTS.values())
            problems = check_rows(sent, rows) + check_rows(groups_of(sent, GROUP), groups)
            if not problems or time.monotonic() > deadline:
                return problems
            time.sleep(1)

    def _note(self, text: str) -> None:
        with (self.folder / "history.log").open("a") as log:
            log.write(f"{time.strftime('%H:%M:%S')} {text}\n")


def planned_records(folder: Path) -> int:
    """Return the number of records that a query has planned, by its checkpoint."""
    batches = [int(file.name) for file in (folder / "offsets").glob("*") if file.name.isdecimal()]
    if not batches:
        return 0
    ends = json.loads((folder / "offsets" / str(max(batches))).read_text().splitlines()[-1])
    return sum(ends[INPUT].values())


def read_committed(servers: str, topic: str) -> list[Row]:
    """Return the committed records up to the current ends, partition by partition."""
    settings = {"bootstrap.servers": servers, "group.id": uuid.uuid4().hex, "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "log_level": 0})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    rows: dict[int, list[Row]] = {number: [] for number in range(PARTITIONS)}
    ended: set[int] = set()
    try:
        while len(ended) < PARTITIONS:
            message = consumer.poll(60)
            assert message is not None, f"{topic} does not end"
            partition = message.partition()
            assert partition is not None, "a message has a partition"
            if message.error():
                ended.add(partition)
            else:
                rows[partition].append(Row((message.key() or b"").decode(), (message.value() or b"").decode()))
    finally:
        consumer.close()
    return [row for partition_rows in rows.values() for row in partition_rows]


def _wait(is_so: Callable[[], bool], what: str, patience_s: float = 60) -> None:
    deadline = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < deadline, f"after {patience_s:g} s, this is still not the case: {what}"
        time.sleep(0.05)
