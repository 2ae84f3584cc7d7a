"""Consumer groups: how long until ten members share a topic, and what commits cost. Run where there are groups."""

import time

from confluent_kafka import Consumer, TopicPartition

from bench.case import GROUPS, Trial, case
from bench.figures import Figures, percentiles
from bench.tools import ToolFailed

PATIENCE_S = 60.0


@case(
    "groups-join",
    "ten members join a group and share 30 partitions",
    needs=GROUPS,
    settings={"group.initial.rebalance.delay.ms": "0"},  # a wait by design would hide what joining takes
)
def groups_join(trial: Trial) -> Figures:
    topic = trial.cluster.once("topic", lambda: trial.new_topic(30))
    settings = {
        "bootstrap.servers": trial.cluster.bootstrap,
        "group.id": f"join-{time.monotonic_ns()}",
        "heartbeat.interval.ms": 200,
        "session.timeout.ms": 10_000,
    }
    members = [Consumer(settings) for _ in range(10)]
    try:
        with trial.measured() as figures:
            began = time.perf_counter()
            for member in members:
                member.subscribe([topic])
            while sorted(len(member.assignment()) for member in members) != [3] * 10:
                for member in members:
                    member.poll(0)
                time.sleep(0.005)
                if time.perf_counter() - began > PATIENCE_S:
                    raise ToolFailed(f"after {PATIENCE_S} s the members do not share the partitions")
            figures["time_ms"] = (time.perf_counter() - began) * 1000
    finally:
        for member in members:
            member.close()
    return figures


@case("groups-commits", "2,000 commits, one after the other", needs=GROUPS)
def groups_commits(trial: Trial) -> Figures:
    topic = trial.cluster.once("topic", lambda: trial.new_topic(1))
    member = Consumer(
        {"bootstrap.servers": trial.cluster.bootstrap, "group.id": "commits", "enable.auto.commit": False}
    )
    member.assign([TopicPartition(topic, 0, 0)])
    member.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)  # finds the coordinator
    times = []
    with trial.measured() as figures:
        for number in range(trial.scaled(2_000)):
            began = time.perf_counter()
            member.commit(offsets=[TopicPartition(topic, 0, number)], asynchronous=False)
            times.append((time.perf_counter() - began) * 1000)
        figures |= percentiles(times)
        figures["records_per_s"] = len(times) / (sum(times) / 1000)
    member.close()
    return figures
