"""Figures of the broker's side of a node: sockets, replicas, waiting requests, fetch sessions, logs, compaction.

All are read when somebody asks; the one walk over all partitions gives several of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ottla.broker.metrics.family import Family, counter, gauge
from ottla.broker.metrics.registry import Registry
from ottla.broker.network.listener import Listener
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.request_workers import RequestWorkers
from ottla.replication.fetchers import Fetchers
from ottla.replication.isr_changes import IsrChanges
from ottla.replication.partitions import Partitions
from ottla.replication.purgatory import Expirations, Timer
from ottla.storage.compaction.scheduler import Compaction
from ottla.storage.directories.logs import Logs


def watch_network(registry: Registry, pools: Sequence[RequestWorkers], listeners: Sequence[Listener]) -> None:
    """The queues, the workers and the connections."""
    channel = "kafka_network_requestchannel_"
    registry.gauge(
        f"{channel}requestqueuesize",
        "Requests that wait for a worker.",
        lambda: sum(len(pool.request_channel.queue) for pool in pools),
    )
    registry.gauge(
        f"{channel}responsequeuesize",
        "Responses that wait to be sent: the socket has taken nothing of them yet.",
        lambda: sum(each.waiting_answers for listener in listeners for each in listener.connections),
    )
    registry.read_counter(
        "ottla_requests_aborted_total",
        "Requests that ended with their connection because a defect left them without an answer: see the log.",
        lambda: sum(pool.request_channel.aborted for pool in pools),
    )
    for pool in pools:
        _watch_pool(registry, pool)
    registry.collect(lambda: _connections(listeners))


def _watch_pool(registry: Registry, pool: RequestWorkers) -> None:
    request_channel, labels = pool.request_channel, {"pool": pool.role}
    for name, what, read in (
        ("workers", "Requests that may be worked on at a time.", lambda: request_channel.workers),
        ("workers_busy", "Requests that are being worked on.", lambda: request_channel.busy),
        ("threads", "Threads that were started for requests that take long.", lambda: len(pool.threads)),
        (
            "connections_blocked",
            "Connections that are not read: the queue of requests is full.",
            lambda: len(request_channel.blocked),
        ),
    ):
        registry.gauge(f"ottla_request_{name}", what, read, labels)


def watch_broker(registry: Registry, broker: BrokerNode) -> None:
    """Replicas, waiting requests and fetch sessions."""
    sessions = broker.sessions
    registry.collect(lambda: _replicas(broker.partitions))
    registry.collect(lambda: _purgatory(broker.timer))
    registry.collect(lambda: _expirations(broker.expirations, broker.partitions))
    registry.collect(lambda: broker.pushed.families(broker.now_ms()))
    registry.read_counter(
        "ottla_replica_stale_assignments_total",
        "Assignments of replicas that were refused: their epochs were older than those in force.",
        lambda: broker.partitions.stale_assignments,
    )
    cache = "kafka_server_fetchsessioncache_"
    registry.gauge(f"{cache}numincrementalfetchsessions", "Fetch sessions.", lambda: len(sessions.sessions))
    registry.gauge(
        f"{cache}numincrementalfetchpartitionscached",
        "Partitions in fetch sessions.",
        lambda: sessions.partition_count,
    )
    registry.read_counter(
        f"{cache}incrementalfetchsessionevictions_total",
        "Fetch sessions that made room for others.",
        lambda: sessions.evictions,
    )


def watch_replication(registry: Registry, fetchers: Fetchers, changes: IsrChanges) -> None:
    """Fetchers, and what the controller is asked about."""
    manager = "kafka_server_replicafetchermanager_"
    registry.gauge(
        f"{manager}maxlag", "Records that the replica lacks that is furthest behind.", lambda: fetchers.max_lag
    )
    registry.gauge(
        f"{manager}failedpartitionscount",
        "Replicas that are not fetched any more in their leader's term.",
        lambda: len(fetchers.failed_epochs),
    )
    registry.gauge("ottla_replica_fetchers", "Fetchers.", lambda: len(fetchers.runners))
    registry.gauge(
        "ottla_isr_changes_waiting", "Changes of ISRs that the controller has yet to decide on.", lambda: len(changes)
    )


def watch_logs(registry: Registry, logs: Logs, compaction: Compaction, *, each_partition: bool) -> None:
    """Log directories, logs and compaction."""
    registry.gauge(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "Log directories that failed.",
        lambda: sum(not directory.is_online for directory in logs.directories),
    )
    registry.collect(lambda: _directories(logs))
    registry.gauge(
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        "Logs that cannot be compacted.",
        lambda: len(compaction.uncleanable),
    )
    registry.read_counter("ottla_log_cleaner_passes_total", "Passes of compaction.", lambda: compaction.passes)
    registry.gauge("ottla_log_cleaner_running", "Whether a log is being compacted.", lambda: int(compaction.is_running))
    if each_partition:
        registry.collect(lambda: _partition_logs(logs))


def _connections(listeners: Sequence[Listener]) -> Iterator[Family]:
    prefix = "kafka_server_socket_server_metrics_"
    count = gauge(f"{prefix}connection_count", "Connections.")
    accepted = counter(f"{prefix}connection_creation_total", "Connections that were accepted.")
    closed = counter(f"{prefix}connection_close_total", "Connections that have ended.")
    refused = counter("ottla_connections_refused_total", "Connections of addresses that had too many.")
    for listener in listeners:
        labels = {"listener": listener.name}
        count.add(len(listener.connections), labels)
        accepted.add(listener.accepted, labels)
        closed.add(listener.closed, labels)
        refused.add(listener.refused, labels)
    yield from (count, accepted, closed, refused)


def _replicas(partitions: Partitions) -> Iterator[Family]:
    count = leaders = under = under_min = at_min = reassigning = offline = 0
    broken = {directory.path for directory in partitions.logs.directories if not directory.is_online}
    for partition in partitions:
        count += 1
        if broken and partition.log.directory.rpartition("/")[0] in broken:
            offline += 1
        if partition.is_leader:
            leaders += 1
            assignment = partition.assignment
            in_sync = len(assignment.isr)
            needed = min(partition.log.settings.min_insync_replicas, len(assignment.replicas))
            under += in_sync < len(assignment.replicas) - len(assignment.adding)
            under_min += in_sync < needed
            at_min += in_sync == needed
            reassigning += assignment.is_reassigning
    prefix = "kafka_server_replicamanager_"
    for name, what, value in (
        ("partitioncount", "Partitions with a replica here.", count),
        ("leadercount", "Partitions led here.", leaders),
        ("underreplicatedpartitions", "Partitions led here with replicas out of sync.", under),
        ("underminisrpartitioncount", "Partitions led here that acks=all cannot be written to.", under_min),
        ("atminisrpartitioncount", "Partitions led here with not one in-sync replica to spare.", at_min),
        ("reassigningpartitions", "Partitions led here that are on the move.", reassigning),
        ("offlinereplicacount", "Replicas on disks that failed.", offline),
    ):
        family = gauge(prefix + name, what)
        family.add(value)
        yield family


def _purgatory(timer: Timer) -> Iterator[Family]:
    prefix = "kafka_server_delayedoperationpurgatory_"
    waiting = gauge(f"{prefix}purgatorysize", "Requests that wait, by kind.")
    delayed = gauge(f"{prefix}numdelayedoperations", "Requests that have a deadline, by kind.")
    sizes = timer.sizes
    for kind in ("Produce", "Fetch", "DeleteRecords", "ShareFetch"):
        for family in (waiting, delayed):
            family.add(sizes[kind], {"delayedoperation": kind})
    yield from (waiting, delayed)


def _expirations(expirations: Expirations, partitions: Partitions) -> Iterator[Family]:
    produces = counter(
        "kafka_server_delayedproducemetrics_expires_total",
        "Partitions of produces whose replicas did not have the batch in time: all, and by partition.",
    )
    produces.add(expirations.produces)
    late = expirations.produces_by_partition(partitions.has)
    for (topic, partition), count in sorted(late.items()):
        produces.add(count, {"topic": topic, "partition": str(partition)})
    fetches = counter(
        "kafka_server_delayedfetchmetrics_expires_total", "Fetches that did not find enough in time, by reader."
    )
    fetches.add(expirations.follower_fetches, {"fetchertype": "follower"})
    fetches.add(expirations.consumer_fetches, {"fetchertype": "consumer"})
    yield from (produces, fetches)


def _directories(logs: Logs) -> Iterator[Family]:
    offline = gauge("kafka_log_logmanager_logdirectoryoffline", "Whether a log directory failed.")
    count = gauge("ottla_log_directory_logs", "Logs in a directory.")
    for directory in logs.directories:
        offline.add(int(not directory.is_online), {"logdirectory": directory.path})
        count.add(len(directory.logs), {"logdirectory": directory.path})
    yield from (offline, count)


def _partition_logs(logs: Logs) -> Iterator[Family]:
    size = gauge("kafka_log_log_size", "Bytes in a partition's log.")
    start = gauge("kafka_log_log_logstartoffset", "The first offset in a partition's log.")
    end = gauge("kafka_log_log_logendoffset", "One behind the last offset in a partition's log.")
    segments = gauge("kafka_log_log_numlogsegments", "Segments of a partition's log.")
    for log in logs:
        labels = {"topic": log.topic, "partition": str(log.partition)}
        size.add(sum(segment.size for segment in log.segments), labels)
        start.add(log.log_start_offset, labels)
        end.add(log.log_end_offset, labels)
        segments.add(len(log.segments), labels)
    yield from (size, start, end, segments)
