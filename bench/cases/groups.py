"""Consumer groups: the time until members share a topic, and the cost of commits, sequential and concurrent."""

import time
from collections.abc import Callable
from threading import Thread

from confluent_kafka import Consumer, TopicPartition

from bench.harness.case import CONSUMER_GROUPS, GROUPS, Trial, case
from bench.harness.figures import Figures, compute_percentiles
from bench.harness.members import Group, Member, classic_member, consumer_member
from bench.harness.tools import ToolFailed

TIMEOUT_S = 60.0
MEMBERS = 100
NO_DELAYS = {"group.initial.rebalance.delay.ms": "0", "group.consumer.assignment.interval.ms": "0"}
"""The default delays would hide the time that joining takes."""
GOALS = {"time_ms": 1.0, "server_cpu_s": 1.0}
COMMIT_GOALS = {"records_per_s": 1.0, "server_cpu_s": 1.0}


@case(
    "groups-join",
    "ten members join a group and share 30 partitions",
    needs=GROUPS,
    settings=NO_DELAYS,
    shares=True,
    seconds=6,
)
def groups_join(trial: Trial) -> Figures:
    topic = trial.cluster.make_once("topic of 30", lambda: trial.new_topic(30))
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
                if time.perf_counter() - began > TIMEOUT_S:
                    raise ToolFailed(f"the members do not share the partitions after {TIMEOUT_S:g} s")
            figures["time_ms"] = (time.perf_counter() - began) * 1000
    finally:
        for member in members:
            member.close()
    return figures


def join_many(trial: Trial, member: Callable[[str], Member]) -> Figures:
    """Let a hundred members join at the same moment, and measure the time until the group is stable."""
    members = trial.scaled(MEMBERS, minimum=5)
    topic = trial.cluster.make_once(f"topic of {members}", lambda: trial.new_topic(members))
    group = Group(trial.cluster.nodes[0].port, f"rest-{time.monotonic_ns()}", members)
    group.find_coordinator()
    with trial.measured() as figures:
        figures["time_ms"] = group.join_all(member(topic))
    return figures


@case(
    "groups-classic100",
    "100 members join a classic group",
    needs=GROUPS,
    settings=NO_DELAYS,
    goals=GOALS,
    shares=True,
    seconds=3,
)
def groups_classic_100(trial: Trial) -> Figures:
    return join_many(trial, lambda _: classic_member)


@case(
    "groups-consumer100",
    "100 members share 100 partitions, consumer protocol (KIP-848)",
    needs=CONSUMER_GROUPS,
    settings=NO_DELAYS,
    goals=GOALS,
    shares=True,
    seconds=3,
)
def groups_consumer_100(trial: Trial) -> Figures:
    return join_many(trial, consumer_member)


def commit_offsets(trial: Trial, clients: int, commits_each: int) -> Figures:
    """Let clients, each in its own group, commit offsets one after the other."""
    topic = trial.cluster.make_once("topic", lambda: trial.new_topic(1))
    members = [_create_committer(trial, topic, number) for number in range(clients)]
    times: list[float] = []

    def commit(member: Consumer) -> None:
        for number in range(commits_each):
            began = time.perf_counter()
            member.commit(offsets=[TopicPartition(topic, 0, number)], asynchronous=False)
            times.append((time.perf_counter() - began) * 1000)

    threads = [Thread(target=commit, args=(member,)) for member in members]
    with trial.measured() as figures:
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        duration_s = time.perf_counter() - began
        figures |= compute_percentiles(times)
        figures["records_per_s"] = len(times) / duration_s
    for member in members:
        member.close()
    if len(times) < clients * commits_each:
        raise ToolFailed(f"{len(times)} of {clients * commits_each} commits got a response")
    return figures


def _create_committer(trial: Trial, topic: str, number: int) -> Consumer:
    Group(trial.cluster.nodes[0].port, f"commits-{number}", 1).find_coordinator()
    member = Consumer(
        {"bootstrap.servers": trial.cluster.bootstrap, "group.id": f"commits-{number}", "enable.auto.commit": False}
    )
    member.assign([TopicPartition(topic, 0, 0)])
    member.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)  # finds the coordinator
    return member


@case("groups-commits", "2,000 commits, one after the other", needs=GROUPS, goals=COMMIT_GOALS, shares=True, seconds=9)
def groups_commits(trial: Trial) -> Figures:
    return commit_offsets(trial, 1, trial.scaled(2_000))


@case(
    "groups-commits10",
    "10 concurrent clients, 500 commits each",
    needs=GROUPS,
    goals=COMMIT_GOALS,
    shares=True,
    seconds=12,
)
def groups_commits_10(trial: Trial) -> Figures:
    return commit_offsets(trial, 10, trial.scaled(500))
