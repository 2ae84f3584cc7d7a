"""Figures of the cluster's metadata: the quorum, what this node has applied of its log, and the active controller."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ottla.broker.metrics.event_metrics import controller_events
from ottla.broker.metrics.family import Family, Sample, counter, gauge, summary
from ottla.broker.metrics.registry import Registry
from ottla.metadata.consensus.log_view import BOOTSTRAP_SNAPSHOT
from ottla.metadata.controller.state_tracker import StateTracker
from ottla.metadata.image.image import Image
from ottla.metadata.image.placement import count_partitions as count_of
from ottla.metadata.runtime.active_controller import ActiveController
from ottla.metadata.runtime.publisher import MetadataPublisher
from ottla.metadata.runtime.quorum_driver import QuorumDriver

_PREFIX = "kafka_controller_kafkacontroller_"


def watch_metadata(
    registry: Registry, metadata: MetadataPublisher, quorum: QuorumDriver, now_ms: Callable[[], int]
) -> None:
    """How far the metadata log is, and how far this node is with it."""
    raft, applied = "kafka_server_raft_metrics_", "kafka_server_broker_metadata_metrics_last_applied_record_"
    consensus, log = quorum.consensus, quorum.log
    for name, what, read in (
        ("current_leader", "The node that leads the quorum, -1 for none.", lambda: consensus.leader_id),
        ("current_epoch", "The quorum's epoch.", lambda: consensus.epoch),
        ("high_watermark", "Up to where the metadata log is committed.", lambda: consensus.high_watermark),
        ("log_end_offset", "Where the metadata log ends here.", lambda: log.end_offset),
        ("log_end_epoch", "The epoch of the metadata log's last record.", lambda: log.last_epoch),
        ("number_of_voters", "Voters of the quorum.", lambda: len(consensus.voters.replicas)),
    ):
        registry.gauge(raft + name, what, read)
    registry.collect(lambda: _role(consensus.role))
    registry.gauge(f"{applied}offset", "The last record applied here.", lambda: metadata.applied_offset - 1)
    registry.gauge(f"{applied}timestamp", "When it was written.", lambda: metadata.image.timestamp)
    registry.gauge(
        f"{applied}lag_ms",
        "How long ago it was written, while there are committed records behind it; 0 when there are none.",
        lambda: max(now_ms() - metadata.image.timestamp, 0) if behind(metadata, quorum) else 0,
    )
    registry.gauge(
        "ottla_metadata_applied_lag_records",
        "Committed records that are not applied here.",
        lambda: behind(metadata, quorum),
    )
    registry.gauge(
        "kafka_server_metadataloader_currentmetadataversion",
        "The level of metadata.version.",
        lambda: metadata.image.features.metadata_version,
    )
    registry.gauge(
        "kafka_server_snapshotemitter_latestsnapshotgeneratedagems",
        "Age of the latest snapshot.",
        lambda: _snapshot_age_ms(quorum, now_ms()),
    )


def watch_controller(registry: Registry, controller: ActiveController) -> None:
    """What the controller of this node knows and does. While another is active, the cluster's figures are 0."""
    machine = controller.machine
    registry.gauge(f"{_PREFIX}activecontrollercount", "1 if it is active.", lambda: int(controller.is_active))
    registry.gauge("kafka_controller_controllereventmanager_eventqueuesize", "Events.", lambda: machine.queue_size)
    registry.collect(lambda: _cluster(machine.state if controller.is_active else Image()))
    registry.collect(lambda: _states(controller.states if controller.is_active else StateTracker()))
    registry.read_counter(
        "ottla_controller_deletions_forgotten_total",
        "Deletions that are not tracked any more, because brokers have yet to carry out too many.",
        lambda: controller.states.forgotten,
    )
    registry.collect(lambda: _events(controller))


def behind(metadata: MetadataPublisher, quorum: QuorumDriver) -> int:
    """How many committed records this node has not applied."""
    return max((quorum.consensus.high_watermark or 0) - metadata.applied_offset, 0)


def _role(role: str) -> Iterator[Family]:
    family = gauge("kafka_server_raft_metrics_current_state", "The node's role in the quorum.")
    family.add(1, {"state": role})
    yield family


def _snapshot_age_ms(quorum: QuorumDriver, now_ms: int) -> int | None:
    log = quorum.log
    latest = log.latest_snapshot
    if latest is None or latest == BOOTSTRAP_SNAPSHOT:
        return None
    path = f"{log.directory}/{latest.offset:020d}-{latest.epoch:010d}.checkpoint"
    return max(now_ms - log.log.environment.disk.modified_ms(path), 0)


def _cluster(image: Image) -> Iterator[Family]:
    placement = image.placement
    fenced = sum(broker.fenced for broker in image.brokers.values())
    for name, what, value in (
        ("activebrokercount", "Brokers in service.", len(image.brokers) - fenced),
        ("fencedbrokercount", "Brokers that are registered and not in service.", fenced),
        (
            "controlledshutdownbrokercount",
            "Brokers that are about to leave.",
            sum(broker.in_controlled_shutdown for broker in image.brokers.values()),
        ),
        ("globaltopiccount", "Topics.", len(image.topics)),
        ("globalpartitioncount", "Partitions.", placement.partition_count),
        ("offlinepartitionscount", "Partitions without a leader.", count_of(placement.leaderless)),
        (
            "preferredreplicaimbalancecount",
            "Partitions that are not led by their first replica.",
            count_of(placement.imbalanced),
        ),
        ("lastappliedrecordoffset", "The last record that the controller decided on.", image.offset),
        ("lastappliedrecordtimestamp", "When it was written.", image.timestamp),
    ):
        family = gauge(_PREFIX + name, what)
        family.add(value)
        yield family


def _states(states: StateTracker) -> Iterator[Family]:
    partitions = gauge("ottla_controller_partitions", "Partitions, by state.")
    for partition_state, count in states.partition_counts().items():
        partitions.add(count, {"state": partition_state.value})
    replicas = gauge("ottla_controller_replicas", "Replicas, by state.")
    for replica_state, count in states.replica_counts().items():
        replicas.add(count, {"state": replica_state.value})
    yield from (partitions, replicas)


def _events(controller: ActiveController) -> Iterator[Family]:
    times = summary("ottla_controller_event_time_ms", "Milliseconds that decisions took, by event.")
    longest = gauge("ottla_controller_event_longest_ms", "The longest of them.")
    failed = counter("ottla_controller_events_failed_total", "Events that were answered with an error.")
    for name, stats in sorted(controller.machine.stats.items()):
        labels = {"event": name}
        times.samples.append(Sample("_sum", labels, stats.total_ns / 1e6))
        times.samples.append(Sample("_count", labels, stats.count))
        longest.add(stats.max_ns / 1e6, labels)
        failed.add(stats.failed, labels)
    yield from (times, longest, failed, *controller_events(controller.machine.times))
