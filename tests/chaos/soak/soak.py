"""A soak test: three nodes, clients of librdkafka and Kafka, random faults, and a check of all acknowledged records.

    outcome = Soak(folder, seed=7, seconds=60).run()
    assert not outcome.problems

Afterwards, the folder contains the history of each client, the logs of the nodes and `report.txt`.
"""

import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from tests.chaos.faults.network import Network
from tests.chaos.soak.checker import check
from tests.chaos.soak.client_processes import ClientFailed, ClientProcesses
from tests.chaos.soak.clients import COPIERS, COPY, PARTITIONS, PLAIN, TRANSACTIONAL
from tests.chaos.soak.fault_injector import FaultInjector
from tests.chaos.soak.history import Event, Recorder, by_kind, name_of, read_history
from tests.support.acknowledged import QUICK
from tests.support.ottla_cluster import OttlaCluster, eventually
from tests.support.ottla_node import NodeFailed
from tests.unit.node.cluster.test_replication import stored

TOPOLOGIES: Final[Mapping[str, Mapping[int, str]]] = {
    "combined": dict.fromkeys((1, 2, 3), "broker,controller"),
    "apart": {**dict.fromkeys((1, 2, 3), "broker"), **dict.fromkeys((4, 5, 6), "controller")},
}
SETTINGS: Final = {
    "min.insync.replicas": "2",
    "transaction.state.log.min.isr": "2",
    "replica.lag.time.max.ms": "3000",
    "replica.socket.timeout.ms": "3000",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.min.session.timeout.ms": "1000",
}
INTERNAL: Final = ("__consumer_offsets", "__transaction_state")
_RECOVERY_S: Final = 90.0
_COPY_S: Final = 240.0
_REPLACE_EVERY_S: Final = 20.0


@dataclass
class Outcome:
    """The problems and counts of a soak."""

    problems: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


class Soak:
    """One run of a soak."""

    def __init__(
        self,
        folder: Path,
        *,
        seed: int,
        seconds: float,
        topology: str = "combined",
        with_java: bool = True,
        quiet: bool = False,
    ) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        self._history = folder / "history"
        self._history.mkdir(parents=True)
        self._folder, self._seed, self._seconds, self._quiet = folder, seed, seconds, quiet
        self._with_java = with_java
        self._roles = TOPOLOGIES[topology]
        self._random = Random(seed)
        self._record = Recorder(self._history, "soak")
        self._began = time.monotonic()
        self._outcome = Outcome()

    def run(self) -> Outcome:
        """Run the soak. The outcome contains all problems, including those that ended it early."""
        with Network(self._roles) as network:
            cluster = OttlaCluster(
                self._folder / "nodes", roles=self._roles, settings=SETTINGS, tolerant=True, network=network
            )
            try:
                with cluster.running():
                    self._create_topics(cluster)
                    with self._running_clients(cluster) as clients:
                        self._run_with_faults(cluster, network, clients)
                    cluster.stop(*cluster.alive)
                self._check_files(cluster)
            except (AssertionError, ClientFailed, NodeFailed) as error:
                self._outcome.problems.append(f"{type(error).__name__}: {error}")
            self._check_logs(cluster)
        events = read_history(self._history)
        self._count(events)
        if by_kind(events, "final"):
            self._outcome.problems += map(str, check(events))
        self._report_outcome()
        self._record.close()
        return self._outcome

    # -- phases --

    def _create_topics(self, cluster: OttlaCluster) -> None:
        for topic in (PLAIN, TRANSACTIONAL, COPY):
            cluster.ask(lambda admin, topic=topic: admin.create_topic(topic, partitions=PARTITIONS, replicas=3))  # type: ignore[misc]

    @contextmanager
    def _running_clients(self, cluster: OttlaCluster) -> Iterator[ClientProcesses]:
        clients = ClientProcesses(self._history, cluster.address, self._seed, with_java=self._with_java)
        try:
            clients.start()
            yield clients
        finally:
            clients.close()

    def _run_with_faults(self, cluster: OttlaCluster, network: Network, clients: ClientProcesses) -> None:
        injector = FaultInjector(cluster, network, self._random, topic=PLAIN, report=self._report)
        end = time.monotonic() + self._seconds
        time.sleep(min(5.0, self._seconds / 3))  # until all clients work
        while (now := time.monotonic()) < end:
            injector.inject(min(end, now + _REPLACE_EVERY_S))
            self._report(f"killed and restarted client {clients.replace_one(self._random)}")
            clients.check_alive()
            self._check_running(cluster)
        self._outcome.counts["faults"] = injector.faults
        injector.repair()
        self._finish(cluster, clients)

    def _finish(self, cluster: OttlaCluster, clients: ClientProcesses) -> None:
        """Wait for recovery, stop the clients, and record the final contents of all topics."""
        for node in cluster.nodes.values():
            node.wait_until_ready()
        self._report("all nodes are ready")
        eventually(lambda: _is_in_sync(cluster), "all replicas are in sync", _RECOVERY_S)
        clients.stop_writers()
        self._report("all writers have stopped")
        eventually(lambda: _is_copied(cluster.address), "all records are copied", _COPY_S)
        clients.stop_others()
        self._report("all clients have stopped")
        for (topic, part), records in _read_all(cluster.address, PLAIN, TRANSACTIONAL, COPY).items():
            self._record.write("final", topic=topic, p=part, r=records)

    # -- checks --

    def _check_running(self, cluster: OttlaCluster) -> None:
        for node in cluster.nodes.values():
            if node.process is not None and (code := node.process.poll()) is not None:
                raise AssertionError(f"node {node.id} ended unexpectedly with exit code {code}: {node.log_tail()}")

    def _check_files(self, cluster: OttlaCluster) -> None:
        """Check that all replicas are equal, byte for byte."""
        for topic in (PLAIN, TRANSACTIONAL, COPY, *INTERNAL):
            for part in range(PARTITIONS):
                name = f"{topic}-{part}"
                copies = {node.id: stored(cluster, node.id, name) for node in cluster.nodes.values() if node.is_broker}
                if len({*copies.values()}) != 1:
                    sizes = {number: len(copy) for number, copy in copies.items()}
                    self._outcome.problems.append(f"replicas of {name} differ: {sizes}")

    def _check_logs(self, cluster: OttlaCluster) -> None:
        """Check that no node has logged an error."""
        for node in cluster.nodes.values():
            lines = node.log_path.read_text(errors="replace").splitlines()
            errors = [line for line in lines if any(mark in line for mark in (" ERROR ", " CRITICAL ", "Traceback"))]
            self._outcome.problems += [f"node {node.id} logged: {line}" for line in errors]

    # -- report --

    def _report(self, text: str) -> None:
        self._record.note(text)
        line = f"{time.monotonic() - self._began:7.1f} s  {text}"
        with (self._folder / "report.txt").open("a") as report:
            report.write(line + "\n")
        if not self._quiet:
            print(line, flush=True)

    def _count(self, events: list[Event]) -> None:
        counts = self._outcome.counts
        counts["acknowledged"] = len(by_kind(events, "ack"))
        counts["given up"] = len(by_kind(events, "fail"))
        counts["polled"] = sum(len(event["r"]) for event in by_kind(events, "poll"))
        counts["assignments"] = len(by_kind(events, "assign"))
        counts["offset commits"] = sum(event["ok"] for event in by_kind(events, "commit"))
        ends = {(event["who"], event["n"]): event["end"] for event in by_kind(events, "txn")}
        for end, number in Counter(ends.values()).items():
            counts[f"transactions: {end}"] = number

    def _report_outcome(self) -> None:
        self._report(", ".join(f"{name} {number}" for name, number in sorted(self._outcome.counts.items())))
        for problem in self._outcome.problems:
            self._report(problem)
        count = len(self._outcome.problems)
        self._report(f"seed {self._seed}: " + (f"{count} PROBLEMS" if count else "no anomalies"))


def _is_in_sync(cluster: OttlaCluster) -> bool:
    topics = cluster.ask(lambda admin: admin.topics())
    names = {topic.name for topic in topics} | {*INTERNAL}
    for name in names:
        topic = cluster.ask(lambda admin, name=name: admin.topic(name))  # type: ignore[misc]
        if any(len(partition.isr) < 3 for partition in topic.partitions.values()):
            return False
    return True


def _is_copied(servers: str) -> bool:
    """Whether the copiers have committed the end of every partition."""
    consumer = Consumer({**QUICK, "bootstrap.servers": servers, "group.id": COPIERS, "enable.auto.commit": False})
    try:
        committed = consumer.committed([TopicPartition(PLAIN, part) for part in range(PARTITIONS)], timeout=_RECOVERY_S)
        ends = [consumer.get_watermark_offsets(partition, timeout=_RECOVERY_S)[1] for partition in committed]
        return [partition.offset for partition in committed] == ends
    finally:
        consumer.close()


def _read_all(servers: str, *topics: str) -> dict[tuple[str, int], list[list[object]]]:
    """Return the offsets and names of all committed records by topic and partition."""
    records: dict[tuple[str, int], list[list[object]]] = {
        (topic, part): [] for topic in topics for part in range(PARTITIONS)
    }
    consumer = Consumer(
        {
            **QUICK,
            "bootstrap.servers": servers,
            "group.id": "soak",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    try:
        consumer.assign([TopicPartition(topic, part, OFFSET_BEGINNING) for topic, part in records])
        unfinished, deadline = {*records}, time.monotonic() + _RECOVERY_S
        while unfinished:
            assert time.monotonic() < deadline, f"{unfinished} were not read within {_RECOVERY_S:g} s"
            for message in consumer.consume(1_000, timeout=0.1):
                partition = (message.topic() or "", message.partition() or 0)
                if (error := message.error()) is None:
                    records[partition].append([message.offset(), name_of(message.value())])
                elif error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(partition)
    finally:
        consumer.close()
    return records
