"""Three nodes: replicated produces, and how long nothing is acknowledged after a leader or controller was killed."""

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
EVERY_S = 0.01
PATIENCE_S = 60.0
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
    "a leader of three nodes is killed: nothing is acknowledged for so long",
    nodes=NODES,
    warm_rounds=0,
    goals={"time_ms": 1 / 8},
    seconds=28,
)
def cluster_failover(trial: Trial) -> Figures:
    topic = trial.new_topic()
    return _gap(trial, topic, _leader(trial, topic))


@case(
    "cluster-failover-controller",
    "the active controller of three nodes is killed: nothing is acknowledged for so long",
    nodes=NODES,
    warm_rounds=0,
    goals={"time_ms": 1 / 8},
    seconds=33,
)
def cluster_failover_controller(trial: Trial) -> Figures:
    """It leads a third of the partitions, as every node does."""
    return _gap(trial, trial.new_topic(partitions=NODES), trial.cluster.nodes[_active_controller(trial) - 1])


@case(
    "cluster-failover-java",
    "the same with Kafka's own producer, for a leader that is killed",
    nodes=NODES,
    warm_rounds=0,
    goals={"time_ms": 1 / 8},
    seconds=31,
)
def cluster_failover_java(trial: Trial) -> Figures:
    topic = trial.new_topic()
    return _java_gap(trial, topic, _leader(trial, topic))


def _leader(trial: Trial, topic: str) -> Node:
    """Whoever leads a new topic; the broker that is asked may learn of it a moment later."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = trial.cluster.admin.list_topics(topic, timeout=30).topics[topic].partitions.get(0)
        if found is not None and found.leader > 0:
            return trial.cluster.nodes[found.leader - 1]
        time.sleep(EVERY_S)
    raise ToolFailed(f"{topic} has no leader")


def _active_controller(trial: Trial) -> int:
    """As the quorum has it: what Metadata call the controller may be any broker."""
    host, port = trial.cluster.nodes[0].address.split(":")
    asked = DescribedTopic(topic_name="__cluster_metadata", partitions=[DescribedPartition(partition_index=0)])
    with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
        answer = send_request(connection, DescribeQuorumRequest(topics=[asked]), DESCRIBE_QUORUM_VERSION)
    return int(answer.topics[0].partitions[0].leader_id)


def _gap(trial: Trial, topic: str, victim: Node) -> Figures:
    """The longest time without an answer after a node was killed, for a producer of librdkafka."""
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
    # Three seconds are more than what an answer that was under way takes; then answers come again, or not yet.
    _send_until(
        producer, topic, lambda: acknowledged[-1] > killed and time.perf_counter() - acknowledged[-1] < 0.1, 3.0
    )
    producer.flush(PATIENCE_S)
    _bring_back(trial, victim)
    return {"time_ms": _longest(killed, acknowledged) * 1000}


def _java_gap(trial: Trial, topic: str, victim: Node) -> Figures:
    """The same for Kafka's own producer, which tells of each answer when it has come."""
    acknowledged: list[float] = []
    properties = trial.folder / "producer.properties"
    settings = {**QUICK_TO_RETRY, "retries": 1000, "retry.backoff.max.ms": 100, "linger.ms": 0}
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = java_tool(
        "VerifiableProducer",
        *("--bootstrap-server", trial.cluster.bootstrap, "--topic", topic, "--acks", "-1"),
        *("--throughput", str(round(1 / EVERY_S)), "--command-config", str(properties)),
    )
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as tool:
        try:
            assert tool.stdout is not None
            killed = 0.0
            for line in tool.stdout:
                said = json.loads(line)
                if said["name"] == "producer_send_error":
                    raise ToolFailed(f"a record was lost: {line}")
                if said["name"] != "producer_send_success":
                    continue
                acknowledged.append(said["timestamp"] / 1000)
                if not killed and len(acknowledged) >= 100:
                    victim.stop(signal.SIGKILL)
                    killed = time.time()
                elif killed and acknowledged[-1] > killed + 3.0:
                    break
        finally:
            tool.kill()
    _bring_back(trial, victim)
    return {"time_ms": _longest(killed, acknowledged) * 1000}


def _longest(killed: float, acknowledged: list[float]) -> float:
    after = [killed, *(moment for moment in acknowledged if moment > killed)]
    return max(later - earlier for earlier, later in itertools.pairwise(after))


def _bring_back(trial: Trial, victim: Node) -> None:
    victim.launch()
    for node in trial.cluster.nodes:
        node.wait_for_brokers(NODES)


def _send_until(producer: Producer, topic: str, done: Callable[[], bool], least_s: float = 0.0) -> None:
    """A record every hundredth of a second until it is done, and for so long at least."""
    began = time.perf_counter()
    while (elapsed := time.perf_counter() - began) < least_s or not done():
        if elapsed > PATIENCE_S:
            raise ToolFailed(f"nothing was acknowledged within {PATIENCE_S:g} s")
        producer.produce(topic, b"record")
        producer.poll(EVERY_S)
