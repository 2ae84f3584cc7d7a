"""Three nodes: replicated produces, and the time without acknowledgements after a leader or controller is killed."""

import itertools
import json
import signal
import socket
import subprocess
import time
from collections.abc import Callable

from confluent_kafka import KafkaError, Message, Producer

from bench.cases.produce import BATCHES_64K, produce
from bench.harness.case import LOAD_GOALS, Trial, case
from bench.harness.figures import Figures
from bench.harness.node_requests import send_request
from bench.harness.systems import Node, java_tool
from bench.harness.tools import ToolFailed
from ottla.protocol.messages.rpc.describe_quorum import DescribeQuorumRequest
from ottla.protocol.messages.rpc.describe_quorum import PartitionData as DescribedPartition
from ottla.protocol.messages.rpc.describe_quorum import TopicData as DescribedTopic

NODES = 3
DESCRIBE_QUORUM_VERSION = 1
INTERVAL_S = 0.01
TIMEOUT_S = 60.0
QUICK_TO_RETRY = {"retry.backoff.ms": 20, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}


@case(
    "cluster-produce",
    "300 k × 1,000 B, three nodes, three replicas, acks=all",
    nodes=NODES,
    goals=LOAD_GOALS,
    seconds=50,
)
def cluster_produce(trial: Trial) -> Figures:
    settings = {**BATCHES_64K, "enable.idempotence": "false"}
    return produce(trial, records=300_000, partitions=3, acks="all", settings=settings)


@case(
    "cluster-failover",
    "leader failover, three nodes: time without acknowledgements",
    nodes=NODES,
    warm_rounds=0,
    goals={"time_ms": 1 / 8},
    seconds=28,
)
def cluster_failover(trial: Trial) -> Figures:
    topic = trial.new_topic()
    return _measure_gap(trial, topic, _find_leader(trial, topic))


@case(
    "cluster-failover-controller",
    "controller failover, three nodes: time without acknowledgements",
    nodes=NODES,
    warm_rounds=0,
    goals={"time_ms": 1 / 8},
    seconds=33,
)
def cluster_failover_controller(trial: Trial) -> Figures:
    """The active controller also leads a third of the partitions, as every node does."""
    return _measure_gap(
        trial, trial.new_topic(partitions=NODES), trial.cluster.nodes[_find_active_controller(trial) - 1]
    )


@case(
    "cluster-failover-java",
    "leader failover, three nodes, Kafka's Java producer: time without acknowledgements",
    nodes=NODES,
    warm_rounds=0,
    goals={"time_ms": 1 / 8},
    seconds=31,
)
def cluster_failover_java(trial: Trial) -> Figures:
    topic = trial.new_topic()
    return _measure_java_gap(trial, topic, _find_leader(trial, topic))


def _find_leader(trial: Trial, topic: str) -> Node:
    """Return the leader of a new topic, retrying while the broker does not know it yet."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        partition = trial.cluster.admin.list_topics(topic, timeout=30).topics[topic].partitions.get(0)
        if partition is not None and partition.leader > 0:
            return trial.cluster.nodes[partition.leader - 1]
        time.sleep(INTERVAL_S)
    raise ToolFailed(f"{topic} has no leader after {TIMEOUT_S:g} s")


def _find_active_controller(trial: Trial) -> int:
    """Return the leader of the quorum. The controller in a Metadata response may be any broker."""
    host, port = trial.cluster.nodes[0].address.split(":")
    metadata_log = DescribedTopic(topic_name="__cluster_metadata", partitions=[DescribedPartition(partition_index=0)])
    with socket.create_connection((host, int(port)), TIMEOUT_S) as connection:
        answer = send_request(connection, DescribeQuorumRequest(topics=[metadata_log]), DESCRIBE_QUORUM_VERSION)
    return int(answer.topics[0].partitions[0].leader_id)


def _measure_gap(trial: Trial, topic: str, victim: Node) -> Figures:
    """Kill a node, and return the longest time without an acknowledgement, for a librdkafka producer."""
    acknowledged: list[float] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise ToolFailed(f"a record was lost: {error}")
        acknowledged.append(time.perf_counter())

    producer = Producer(
        {"bootstrap.servers": trial.cluster.bootstrap, "acks": "all", "log_level": 0, "on_delivery": delivered}
        | QUICK_TO_RETRY
    )
    _send_until(producer, topic, lambda: len(acknowledged) >= 100)
    victim.stop(signal.SIGKILL)
    killed = time.perf_counter()
    # In-flight responses arrive within three seconds. The gap is over when acknowledgements are frequent again.
    _send_until(
        producer, topic, lambda: acknowledged[-1] > killed and time.perf_counter() - acknowledged[-1] < 0.1, 3.0
    )
    producer.flush(TIMEOUT_S)
    _restart(trial, victim)
    return {"time_ms": _longest_gap(killed, acknowledged) * 1000}


def _measure_java_gap(trial: Trial, topic: str, victim: Node) -> Figures:
    """Do the same for Kafka's Java producer, which prints a line for each acknowledgement."""
    acknowledged: list[float] = []
    properties = trial.folder / "producer.properties"
    settings = {**QUICK_TO_RETRY, "retries": 1000, "retry.backoff.max.ms": 100, "linger.ms": 0}
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = java_tool(
        "VerifiableProducer",
        *("--bootstrap-server", trial.cluster.bootstrap, "--topic", topic, "--acks", "-1"),
        *("--throughput", str(round(1 / INTERVAL_S)), "--command-config", str(properties)),
    )
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as tool:
        try:
            assert tool.stdout is not None
            killed = 0.0
            for line in tool.stdout:
                event = json.loads(line)
                if event["name"] == "producer_send_error":
                    raise ToolFailed(f"a record was lost: {line}")
                if event["name"] != "producer_send_success":
                    continue
                acknowledged.append(event["timestamp"] / 1000)
                if not killed and len(acknowledged) >= 100:
                    victim.stop(signal.SIGKILL)
                    killed = time.time()
                elif killed and acknowledged[-1] > killed + 3.0:
                    break
        finally:
            tool.kill()
    _restart(trial, victim)
    return {"time_ms": _longest_gap(killed, acknowledged) * 1000}


def _longest_gap(killed: float, acknowledged: list[float]) -> float:
    after = [killed, *(moment for moment in acknowledged if moment > killed)]
    return max(later - earlier for earlier, later in itertools.pairwise(after))


def _restart(trial: Trial, victim: Node) -> None:
    victim.launch()
    for node in trial.cluster.nodes:
        node.wait_for_brokers(NODES)


def _send_until(producer: Producer, topic: str, is_done: Callable[[], bool], minimum_s: float = 0.0) -> None:
    """Send a record every 10 ms until `is_done`, and for at least the minimum time."""
    began = time.perf_counter()
    while (elapsed := time.perf_counter() - began) < minimum_s or not is_done():
        if elapsed > TIMEOUT_S:
            raise ToolFailed(f"nothing was acknowledged within {TIMEOUT_S:g} s")
        producer.produce(topic, b"record")
        producer.poll(INTERVAL_S)
