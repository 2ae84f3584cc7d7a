"""Curves: the cost of work against the number of partitions, connections and groups, and the size of a log.

A flat or linear curve is good.
"""

import random
import time
from functools import partial

from bench.cases.idle import measure_idle, open_connections
from bench.harness import measure
from bench.harness.case import GROUPS, SHARE_GROUPS, Trial, case
from bench.harness.figures import Figures, compute_percentiles
from bench.harness.load import librdkafka
from bench.harness.members import Group, retry_until_ready
from bench.harness.node_requests import request_broker_count, send_request
from bench.harness.tools import ToolFailed, producer_performance
from ottla.protocol.messages.rpc.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.rpc.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

PINGS = 500
SETTLE_S, WATCH_S = 0.5, 3.0
COMMITS = 2_000
FETCHES = 1_000
RECORD_BYTES = 1_000
NODES = 3
ONE_BY_ONE = 500
BUSY, WIDE_RECORDS, WIDE_RECORDS_PER_S = 5, 300, 60.0
SETTLED_PARTITIONS_PER_S = 500
"""The minimum number of partitions that a cluster creates and replicates per second; sets how long a case settles."""


@case(
    "growth-partitions",
    "one topic, by number of partitions: create it, write to it, idle",
    warm_rounds=0,
    axis="partitions",
    sizes=(1, 100, 1_000, 10_000),
    quick_sizes=(1, 10, 100),
    seconds=115,
)
def growth_partitions(trial: Trial) -> Figures:
    assert trial.x is not None
    began = time.perf_counter()
    topic = trial.new_topic(trial.x)
    created = time.perf_counter() - began
    with trial.measured() as figures:
        figures |= producer_performance(
            trial.cluster.bootstrap,
            topic,
            records=trial.scaled(12_000),
            record_bytes=1_000,
            settings={"acks": "1"},
        )
    # The node creates the files of many partitions over some time.
    idle_figures = measure_idle(trial, settle_s=SETTLE_S + trial.x / 1_500, watch_s=WATCH_S)
    trial.cluster.delete_topics([topic])
    return {**figures, **idle_figures, "time_ms": created * 1000}


@case(
    "growth-connections",
    "by number of connections: open them, idle, send requests on one of them",
    quick=True,
    warm_rounds=0,
    axis="connections",
    sizes=(1, 100, 1_000, 5_000),
    quick_sizes=(10, 1_000),
    seconds=37,
)
def growth_connections(trial: Trial) -> Figures:
    assert trial.x is not None
    began = time.perf_counter()
    with open_connections(trial, trial.x) as connections:
        opened = time.perf_counter() - began
        figures = measure_idle(trial, settle_s=SETTLE_S, watch_s=WATCH_S)
        used = measure.cpu_seconds(trial.cluster.pids)
        times = []
        for _ in range(PINGS):
            sent = time.perf_counter()
            request_broker_count(connections[-1])
            times.append((time.perf_counter() - sent) * 1000)
        figures["server_cpu_s"] = measure.cpu_seconds(trial.cluster.pids) - used
    return {**figures, **compute_percentiles(times), "time_ms": opened * 1000}


@case(
    "growth-groups",
    "by number of groups: one commit of each, then 2,000 commits of random groups; idle",
    needs=GROUPS,
    warm_rounds=0,
    axis="groups",
    sizes=(1, 100, 1_000),
    quick_sizes=(1, 100),
    seconds=31,
)
def growth_groups(trial: Trial) -> Figures:
    assert trial.x is not None
    topic = trial.cluster.make_once("topic", lambda: trial.new_topic(1))
    names = [f"many-{trial.x}-{number}" for number in range(trial.x)]
    group = Group(trial.cluster.nodes[0].port, names[0], 0)
    group.find_coordinator()
    chooser = random.Random(trial.x)
    with group.connect() as connection:

        def commit(name: str, offset: int) -> int:
            part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
            request = OffsetCommitRequest(
                group_id=name, topics=[OffsetCommitRequestTopic(name=topic, partitions=[part])]
            )
            return int(send_request(connection, request, 8).topics[0].partitions[0].error_code)

        for name in names:
            if retry_until_ready(partial(commit, name, 0)):
                raise ToolFailed(f"group {name} cannot commit")
        with trial.measured() as figures:
            times = []
            for number in range(trial.scaled(COMMITS)):
                began = time.perf_counter()
                if code := commit(chooser.choice(names), number):
                    raise ToolFailed(f"a commit got error {code}")
                times.append((time.perf_counter() - began) * 1000)
            figures |= compute_percentiles(times)
            figures["records_per_s"] = len(times) / (sum(times) / 1000)
    return {**figures, **measure_idle(trial, settle_s=SETTLE_S, watch_s=WATCH_S)}


@case(
    "growth-log",
    "by size of the log: append 50 k × 1,000 B, then 1,000 small fetches at random offsets",
    warm_rounds=0,
    axis="MB",
    sizes=(10, 100, 1_000, 3_000),
    quick_sizes=(10, 100),
    seconds=75,
)
def growth_log(trial: Trial) -> Figures:
    """The time is that of the fetches. The log is in the page cache, so that no fetch waits for the disk."""
    return log_of_size(trial)


@case(
    "growth-log-20gb",
    "by size of the log, up to 20 GB: append 50 k × 1,000 B, then 1,000 small fetches at random offsets",
    warm_rounds=0,
    axis="MB",
    sizes=(1_000, 5_000, 20_000),
    named_only=True,
)
def growth_log_20gb(trial: Trial) -> Figures:
    return log_of_size(trial)


def log_of_size(trial: Trial) -> Figures:
    """Let the log grow to its size, then append records and fetch at random offsets."""
    assert trial.x is not None
    topic = trial.cluster.make_once("topic", trial.new_topic)
    written = trial.cluster.make_once("written", lambda: [0])
    missing = trial.x * 1_000 - written[0]
    if missing > 0:
        _write(trial, topic, missing)
        written[0] += missing
    more = trial.scaled(50_000)
    with trial.measured() as figures:
        write_figures = _write(trial, topic, more)
        written[0] += more
        figures |= _fetch_at_random(trial, topic, written[0])
        figures["records_per_s"] = write_figures["records_per_s"]
    return figures


def _write(trial: Trial, topic: str, records: int) -> Figures:
    return producer_performance(
        trial.cluster.bootstrap,
        topic,
        records=records,
        record_bytes=RECORD_BYTES,
        settings={"acks": "1", "batch.size": "65536"},
    )


def _fetch_at_random(trial: Trial, topic: str, records: int) -> Figures:
    chooser = random.Random(records)
    times = []
    with Group(trial.cluster.nodes[0].port, "", 0).connect() as connection:
        for _ in range(trial.scaled(FETCHES)):
            part = FetchPartition(partition=0, fetch_offset=chooser.randrange(records), partition_max_bytes=10_000)
            began = time.perf_counter()
            answer = send_request(connection, FetchRequest(topics=[FetchTopic(topic=topic, partitions=[part])]), 11)
            times.append((time.perf_counter() - began) * 1000)
            data = answer.responses[0].partitions[0]
            if data.error_code:
                raise ToolFailed(f"a fetch at {part.fetch_offset} of {records} got error {data.error_code}")
            if not data.records:
                raise ToolFailed(f"a fetch at {part.fetch_offset} of {records} got no records")
    return {**compute_percentiles(times), "time_ms": sum(times)}


@case(
    "growth-replicated",
    "three nodes, by number of idle partitions with three replicas: idle, then 500 sequential records, acks=all",
    nodes=NODES,
    warm_rounds=0,
    goals={"p50_ms": 0.5, "idle_percent": 0.5},
    limits={"each_kb": 4.0},
    rises={"p50_ms": 1.5},
    axis="idle partitions",
    sizes=(3, 300, 1_000, 3_000, 10_000),
    quick_sizes=(3, 300),
    named_only=True,
)
def growth_replicated(trial: Trial) -> Figures:
    """The memory per item is that of one replica, measured over those added since the first size."""
    assert trial.x is not None
    created, first = trial.cluster.make_once("created", lambda: [0]), trial.cluster.make_once("first", dict[str, float])
    trial.new_topic(trial.x - created[0])
    settle_s = 3 + (trial.x - created[0]) / SETTLED_PARTITIONS_PER_S
    created[0] = trial.x
    figures = measure_idle(trial, settle_s=settle_s, watch_s=10.0)
    with trial.topic() as topic, trial.measured() as measured:
        measured |= librdkafka(
            "one-by-one",
            bootstrap=trial.cluster.bootstrap,
            topic=topic,
            records=trial.scaled(ONE_BY_ONE),
            record_bytes=100,
            settings={"acks": "all"},
        )
    measured["node_mb"] = figures["rss_mb"] / NODES
    if first:
        added = (trial.x - first["partitions"]) * NODES
        measured["each_kb"] = max(0.0, figures["rss_mb"] - first["rss_mb"]) * 1_000 / added
    else:
        first |= {"partitions": trial.x, "rss_mb": figures["rss_mb"]}
    return {**measured, **figures}


@case(
    "growth-wide",
    "a consumer, then a share consumer, by number of assigned partitions; 60 records/s to five of them",
    needs=SHARE_GROUPS,
    warm_rounds=0,
    rises={"p50_ms": 1.5, "server_cpu_s": 1.5, "share_p50_ms": 1.5, "share_cpu_s": 1.5},
    axis="partitions",
    sizes=(1, 300, 3_000, 10_000),
    quick_sizes=(1, 300),
    named_only=True,
)
def growth_wide(trial: Trial) -> Figures:
    """The consumers use no client library, because libraries iterate over all partitions for each fetch."""
    assert trial.x is not None
    busy = trial.new_topic(min(BUSY, trial.x))
    topics = {busy: min(BUSY, trial.x)}
    if trial.x > BUSY:
        topics[trial.new_topic(trial.x - BUSY)] = trial.x - BUSY
    time.sleep(SETTLE_S + trial.x / SETTLED_PARTITIONS_PER_S)
    arguments = {
        "bootstrap": trial.cluster.bootstrap,
        "port": trial.cluster.nodes[0].port,
        "topics": topics,
        "busy": busy,
        "records_per_s": WIDE_RECORDS_PER_S,
        "records": trial.scaled(WIDE_RECORDS),
        "record_bytes": 100,
        "pids": trial.cluster.pids,
    }
    with trial.measured() as both:
        figures = librdkafka("wide", group=None, **arguments)
        share_figures = librdkafka("wide", group=f"wide-{trial.x}", **arguments)
    # The topics are not deleted: that would delete their files a minute later, while the next size is measured.
    renamed = {"server_cpu_s": "share_cpu_s", "p50_ms": "share_p50_ms", "p99_ms": "share_p99_ms"}
    return {**both, **figures, **{name: share_figures[old] for old, name in renamed.items() if old in share_figures}}
