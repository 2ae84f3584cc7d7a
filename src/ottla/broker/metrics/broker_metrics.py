"""Metrics of a broker: sockets, replicas, waiting requests, fetch sessions, logs, compaction.

All values are read when the metrics are requested. One pass over all partitions gives several of them.
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
    """Register the metrics of request queues, workers and connections."""
    channel = "kafka_network_requestchannel_"
    registry.gauge(
        f"{channel}requestqueuesize",
        "Requests in the queue, waiting for a worker.",
        lambda: sum(len(pool.request_channel.queue) for pool in pools),
    )
    registry.gauge(
        f"{channel}responsequeuesize",
        "Responses of which the socket has not taken a byte.",
        lambda: sum(connection.waiting_answers for listener in listeners for connection in listener.connections),
    )
    registry.read_counter(
        "ottla_requests_aborted_total",
        "Requests whose connection was closed because a defect left them without an answer; see the log.",
        lambda: sum(pool.request_channel.aborted for pool in pools),
    )
    for pool in pools:
        _watch_pool(registry, pool)
    registry.collect(lambda: _connections(listeners))


def _watch_pool(registry: Registry, pool: RequestWorkers) -> None:
    channel, labels = pool.request_channel, {"pool": pool.role}
    for name, what, read in (
        ("workers", "Workers: the number of requests that can be processed at a time.", lambda: channel.workers),
        ("workers_busy", "Workers in use.", lambda: channel.busy),
        ("threads", "Threads for long-running requests.", lambda: len(pool.threads)),
        (
            "connections_blocked",
            "Connections that are not read because the request queue is full.",
            lambda: len(channel.blocked),
        ),
    ):
        registry.gauge(f"ottla_request_{name}", what, read, labels)


def watch_broker(registry: Registry, broker: BrokerNode) -> None:
    """Register the metrics of replicas, waiting requests and fetch sessions."""
    sessions = broker.sessions
    registry.collect(lambda: _replicas(broker))
    registry.collect(lambda: _purgatory(broker.timer))
    registry.collect(lambda: _expirations(broker.expirations, broker.partitions))
    registry.collect(lambda: broker.pushed.families(broker.now_ms()))
    registry.read_counter(
        "ottla_replica_stale_assignments_total",
        "Replica assignments that were ignored because their epoch was stale.",
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
        "Fetch sessions that were evicted.",
        lambda: sessions.evictions,
    )


def watch_replication(registry: Registry, fetchers: Fetchers, changes: IsrChanges) -> None:
    """Register the metrics of replica fetchers and of ISR changes."""
    manager = "kafka_server_replicafetchermanager_"
    registry.gauge(
        f"{manager}maxlag", "Records that the replica furthest behind its leader lacks.", lambda: fetchers.max_lag
    )
    registry.gauge(
        f"{manager}failedpartitionscount",
        "Replicas whose fetching failed in the current leader epoch.",
        lambda: len(fetchers.failed_epochs),
    )
    registry.gauge("ottla_replica_fetchers", "Replica fetchers.", lambda: len(fetchers.runners))
    registry.gauge(
        "ottla_isr_changes_waiting", "ISR changes that wait for the controller's decision.", lambda: len(changes)
    )


def watch_logs(registry: Registry, logs: Logs, compaction: Compaction, *, each_partition: bool) -> None:
    """Register the metrics of log directories, logs and compaction."""
    registry.gauge(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "Log directories that are offline.",
        lambda: sum(not directory.is_online for directory in logs.directories),
    )
    registry.collect(lambda: _directories(logs))
    registry.gauge(
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        "Logs that cannot be compacted because of an error.",
        lambda: len(compaction.uncleanable),
    )
    registry.read_counter("ottla_log_cleaner_passes_total", "Compaction passes.", lambda: compaction.passes)
    registry.gauge(
        "ottla_log_cleaner_running",
        "1 while a log is being compacted, otherwise 0.",
        lambda: int(compaction.is_running),
    )
    if each_partition:
        registry.collect(lambda: _partition_logs(logs))


def _connections(listeners: Sequence[Listener]) -> Iterator[Family]:
    prefix = "kafka_server_socket_server_metrics_"
    count = gauge(f"{prefix}connection_count", "Open connections.")
    accepted = counter(f"{prefix}connection_creation_total", "Connections accepted.")
    closed = counter(f"{prefix}connection_close_total", "Connections closed.")
    refused = counter("ottla_connections_refused_total", "Connections refused because their address had too many.")
    for listener in listeners:
        labels = {"listener": listener.name}
        count.add(len(listener.connections), labels)
        accepted.add(listener.accepted, labels)
        closed.add(listener.closed, labels)
        refused.add(listener.refused, labels)
    yield from (count, accepted, closed, refused)


def _replicas(broker: BrokerNode) -> Iterator[Family]:
    partitions = broker.partitions
    now_ms, max_timeout_ms = broker.now_ms(), broker.setting("transaction.max.timeout.ms")
    count = leaders = under = under_min = at_min = reassigning = offline = late = 0
    broken = {directory.path for directory in partitions.logs.directories if not directory.is_online}
    for partition in partitions:
        count += 1
        if broken and partition.log.directory.rpartition("/")[0] in broken:
            offline += 1
        if partition.is_leader:
            leaders += 1
            assignment = partition.assignment
            in_sync = len(assignment.isr)
            needed = partition.effective_min_isr
            under += in_sync < len(assignment.replicas) - len(assignment.adding)
            under_min += in_sync < needed
            at_min += in_sync == needed
            reassigning += assignment.is_reassigning
            late += partition.log.producers.has_late_transaction(now_ms, max_timeout_ms)
    prefix = "kafka_server_replicamanager_"
    for name, what, value in (
        ("partitioncount", "Partitions with a replica on this broker.", count),
        ("leadercount", "Partitions led by this broker.", leaders),
        ("underreplicatedpartitions", "Partitions led by this broker that have replicas out of sync.", under),
        (
            "underminisrpartitioncount",
            "Partitions led by this broker that have fewer in-sync replicas than min.insync.replicas.",
            under_min,
        ),
        (
            "atminisrpartitioncount",
            "Partitions led by this broker that have exactly min.insync.replicas in-sync replicas.",
            at_min,
        ),
        ("reassigningpartitions", "Partitions led by this broker that are being reassigned.", reassigning),
        ("offlinereplicacount", "Replicas in log directories that are offline.", offline),
        (
            "partitionswithlatetransactionscount",
            "Partitions led by this broker with a transaction that is open for longer than its coordinator allows.",
            late,
        ),
    ):
        family = gauge(prefix + name, what)
        family.add(value)
        yield family


def _purgatory(timer: Timer) -> Iterator[Family]:
    prefix = "kafka_server_delayedoperationpurgatory_"
    waiting = gauge(f"{prefix}purgatorysize", "Requests in the purgatory, by kind.")
    delayed = gauge(f"{prefix}numdelayedoperations", "Requests in the purgatory that have a deadline, by kind.")
    sizes = timer.sizes
    for kind in ("Produce", "Fetch", "DeleteRecords", "ShareFetch"):
        for family in (waiting, delayed):
            family.add(sizes[kind], {"delayedoperation": kind})
    yield from (waiting, delayed)


def _expirations(expirations: Expirations, partitions: Partitions) -> Iterator[Family]:
    produces = counter(
        "kafka_server_delayedproducemetrics_expires_total",
        "Partitions of produce requests that expired before their replicas had the batch: in total and by partition.",
    )
    produces.add(expirations.produces)
    late = expirations.produces_by_partition(partitions.has)
    for (topic, partition), count in sorted(late.items()):
        produces.add(count, {"topic": topic, "partition": str(partition)})
    fetches = counter(
        "kafka_server_delayedfetchmetrics_expires_total",
        "Fetch requests that expired before min.bytes were available, by fetcher.",
    )
    fetches.add(expirations.follower_fetches, {"fetchertype": "follower"})
    fetches.add(expirations.consumer_fetches, {"fetchertype": "consumer"})
    yield from (produces, fetches)


def _directories(logs: Logs) -> Iterator[Family]:
    offline = gauge("kafka_log_logmanager_logdirectoryoffline", "1 if the log directory is offline, otherwise 0.")
    count = gauge("ottla_log_directory_logs", "Logs in the log directory.")
    for directory in logs.directories:
        offline.add(int(not directory.is_online), {"logdirectory": directory.path})
        count.add(len(directory.logs), {"logdirectory": directory.path})
    yield from (offline, count)


def _partition_logs(logs: Logs) -> Iterator[Family]:
    size = gauge("kafka_log_log_size", "Size of the partition's log in bytes.")
    start = gauge("kafka_log_log_logstartoffset", "The log start offset of the partition.")
    end = gauge("kafka_log_log_logendoffset", "The log end offset of the partition.")
    segments = gauge("kafka_log_log_numlogsegments", "Segments of the partition's log.")
    for log in logs:
        labels = {"topic": log.topic, "partition": str(log.partition)}
        size.add(sum(segment.size for segment in log.segments), labels)
        start.add(log.log_start_offset, labels)
        end.add(log.log_end_offset, labels)
        segments.add(len(log.segments), labels)
    yield from (size, start, end, segments)
