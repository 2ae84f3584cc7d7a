"""Metrics of the cluster's metadata: the quorum, this node's progress in the metadata log, the active controller."""

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
    """Register the metrics of the quorum, and of this node's progress in the metadata log."""
    raft, applied = "kafka_server_raft_metrics_", "kafka_server_broker_metadata_metrics_last_applied_record_"
    consensus, log = quorum.consensus, quorum.log
    for name, what, read in (
        ("current_leader", "The leader of the quorum; -1 if there is no leader.", lambda: consensus.leader_id),
        ("current_epoch", "The leader epoch of the quorum.", lambda: consensus.epoch),
        ("high_watermark", "The high watermark of the metadata log.", lambda: consensus.high_watermark),
        ("log_end_offset", "The log end offset of the metadata log on this node.", lambda: log.end_offset),
        ("log_end_epoch", "The epoch of the last record in the metadata log on this node.", lambda: log.last_epoch),
        ("number_of_voters", "Voters in the quorum.", lambda: len(consensus.voters.replicas)),
    ):
        registry.gauge(raft + name, what, read)
    registry.collect(lambda: _role(consensus.role))
    registry.gauge(
        f"{applied}offset",
        "The offset of the last metadata record that this node has applied.",
        lambda: metadata.applied_offset - 1,
    )
    registry.gauge(
        f"{applied}timestamp",
        "The timestamp of the last metadata record that this node has applied.",
        lambda: metadata.image.timestamp,
    )
    registry.gauge(
        f"{applied}lag_ms",
        "The age of the last applied metadata record, in milliseconds; 0 if all committed records are applied.",
        lambda: max(now_ms() - metadata.image.timestamp, 0) if behind(metadata, quorum) else 0,
    )
    registry.gauge(
        "ottla_metadata_applied_lag_records",
        "Committed metadata records that this node has not applied.",
        lambda: behind(metadata, quorum),
    )
    registry.gauge(
        "kafka_server_metadataloader_currentmetadataversion",
        "The finalized level of metadata.version.",
        lambda: metadata.image.features.metadata_version,
    )
    registry.gauge(
        "kafka_server_snapshotemitter_latestsnapshotgeneratedagems",
        "The age of the latest metadata snapshot, in milliseconds.",
        lambda: _snapshot_age_ms(quorum, now_ms()),
    )


def watch_controller(registry: Registry, controller: ActiveController) -> None:
    """Register the metrics of this node's controller. While another one is active, the cluster's values are 0."""
    machine = controller.machine
    registry.gauge(
        f"{_PREFIX}activecontrollercount",
        "1 if the controller of this node is active, otherwise 0.",
        lambda: int(controller.is_active),
    )
    registry.gauge(
        "kafka_controller_controllereventmanager_eventqueuesize",
        "Events in the queue of the controller.",
        lambda: machine.queue_size,
    )
    registry.collect(lambda: _cluster(machine.state if controller.is_active else Image()))
    registry.collect(lambda: _states(controller.states if controller.is_active else StateTracker()))
    registry.read_counter(
        "ottla_controller_deletions_forgotten_total",
        "Deleted replicas that are no longer tracked because brokers have too many left to delete.",
        lambda: controller.states.forgotten,
    )
    registry.collect(lambda: _events(controller))


def behind(metadata: MetadataPublisher, quorum: QuorumDriver) -> int:
    """Return the number of committed metadata records that this node has not applied."""
    return max((quorum.consensus.high_watermark or 0) - metadata.applied_offset, 0)


def _role(role: str) -> Iterator[Family]:
    family = gauge("kafka_server_raft_metrics_current_state", "1 with the node's role in the quorum as the label.")
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
        ("activebrokercount", "Registered brokers that are not fenced.", len(image.brokers) - fenced),
        ("fencedbrokercount", "Registered brokers that are fenced.", fenced),
        (
            "controlledshutdownbrokercount",
            "Brokers in controlled shutdown.",
            sum(broker.in_controlled_shutdown for broker in image.brokers.values()),
        ),
        ("globaltopiccount", "Topics in the cluster.", len(image.topics)),
        ("globalpartitioncount", "Partitions in the cluster.", placement.partition_count),
        ("offlinepartitionscount", "Partitions without a leader.", count_of(placement.leaderless)),
        (
            "preferredreplicaimbalancecount",
            "Partitions whose leader is not their preferred replica.",
            count_of(placement.imbalanced),
        ),
        (
            "lastappliedrecordoffset",
            "The offset of the last metadata record that the controller has decided on.",
            image.offset,
        ),
        (
            "lastappliedrecordtimestamp",
            "The timestamp of the last metadata record that the controller has decided on.",
            image.timestamp,
        ),
    ):
        family = gauge(_PREFIX + name, what)
        family.add(value)
        yield family


def _states(states: StateTracker) -> Iterator[Family]:
    partitions = gauge("ottla_controller_partitions", "Partitions in the cluster, by state.")
    for partition_state, count in states.partition_counts().items():
        partitions.add(count, {"state": partition_state.value})
    replicas = gauge("ottla_controller_replicas", "Replicas in the cluster, by state.")
    for replica_state, count in states.replica_counts().items():
        replicas.add(count, {"state": replica_state.value})
    yield from (partitions, replicas)


def _events(controller: ActiveController) -> Iterator[Family]:
    times = summary("ottla_controller_event_time_ms", "Milliseconds to decide on an event, by event.")
    longest = gauge(
        "ottla_controller_event_longest_ms", "The longest time to decide on an event, in milliseconds, by event."
    )
    failed = counter("ottla_controller_events_failed_total", "Events that failed with an error, by event.")
    for name, stats in sorted(controller.machine.stats.items()):
        labels = {"event": name}
        times.samples.append(Sample("_sum", labels, stats.total_ns / 1e6))
        times.samples.append(Sample("_count", labels, stats.count))
        longest.add(stats.max_ns / 1e6, labels)
        failed.add(stats.failed, labels)
    yield from (times, longest, failed, *controller_events(controller.machine.times))
