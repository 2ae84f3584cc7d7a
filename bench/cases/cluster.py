"""Three nodes: replicated produces, and how long nothing is acknowledged after a leader was killed."""

import itertools
import signal
import time
from collections.abc import Callable

from confluent_kafka import KafkaError, Message, Producer

from bench.case import LOAD_GOALS, Trial, case
from bench.cases.produce import BATCHES_64K, produce
from bench.figures import Figures
from bench.tools import ToolFailed

NODES = 3
EVERY_S = 0.01
PATIENCE_S = 60.0
QUICK_TO_RETRY = {"retry.backoff.ms": 20, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}


@case("cluster-produce", "300 k × 1,000 B, three nodes, three replicas, acks=all", nodes=NODES, goals=LOAD_GOALS)
def cluster_produce(trial: Trial) -> Figures:
    settings = {**BATCHES_64K, "enable.idempotence": "false"}
    return produce(trial, records=300_000, partitions=3, acks="all", settings=settings)


@case(
    "cluster-failover",
    "a leader of three nodes is killed: nothing is acknowledged for so long",
    nodes=NODES,
    warm_rounds=1,
    goals={"time_ms": 1 / 8},
)
def cluster_failover(trial: Trial) -> Figures:
    topic = trial.new_topic()
    found = trial.cluster.admin.list_topics(topic, timeout=30).topics[topic]
    victim = trial.cluster.nodes[found.partitions[0].leader - 1]
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
    after = [killed, *(moment for moment in acknowledged if moment > killed)]
    gap = max(later - earlier for earlier, later in itertools.pairwise(after))
    victim.launch()
    for node in trial.cluster.nodes:
        node.wait_for_brokers(NODES)
    return {"time_ms": gap * 1000}


def _send_until(producer: Producer, topic: str, done: Callable[[], bool], least_s: float = 0.0) -> None:
    """A record every hundredth of a second until it is done, and for so long at least."""
    began = time.perf_counter()
    while (elapsed := time.perf_counter() - began) < least_s or not done():
        if elapsed > PATIENCE_S:
            raise ToolFailed(f"nothing was acknowledged within {PATIENCE_S:g} s")
        producer.produce(topic, b"record")
        producer.poll(EVERY_S)
