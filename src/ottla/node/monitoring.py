"""What operators see of a node: metrics, the request log, and the HTTP port for metrics and health checks.

Each part of the node is watched once it is created. The port opens first, so that a node that does not become ready
can report why.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from time import monotonic, perf_counter_ns
from typing import Final

from ottla import __version__
from ottla.broker.metrics.broker_metrics import watch_broker, watch_logs, watch_network, watch_replication
from ottla.broker.metrics.event_loop_monitor import EventLoopMonitor
from ottla.broker.metrics.event_metrics import watch_coordinators
from ottla.broker.metrics.family import CONTENT_TYPE
from ottla.broker.metrics.process_metrics import process_families
from ottla.broker.metrics.quorum_metrics import behind, watch_controller, watch_metadata
from ottla.broker.metrics.registry import Registry
from ottla.broker.metrics.request_log import RequestLog
from ottla.broker.metrics.request_metrics import RequestMeters
from ottla.broker.metrics.timed_disk import TimedDisk
from ottla.broker.metrics.topic_traffic import TopicTrafficMeters
from ottla.broker.network.listener import Listener
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.request_workers import RequestWorkers
from ottla.config.listeners import parse_address
from ottla.config.node_settings import NodeSettings
from ottla.config.settings.ottla_settings import METRICS_LISTENER, METRICS_PARTITIONS
from ottla.metadata.controller.state_tracker import StateTracker
from ottla.metadata.image.changes import Changes
from ottla.metadata.image.image import EMPTY
from ottla.metadata.image.loader import Update
from ottla.metadata.image.values import Topic
from ottla.metadata.runtime.active_controller import ActiveController
from ottla.metadata.runtime.publisher import MetadataPublisher
from ottla.metadata.runtime.quorum_driver import QuorumDriver
from ottla.node.broker_lifecycle import BrokerLifecycle
from ottla.node.http_server import Answer, HttpServer
from ottla.node.replication import Replication
from ottla.node.topic_states import TopicStates
from ottla.protocol.messages.apis import ApiKey
from ottla.replication.purgatory import Expirations
from ottla.replication.runtime import Runtime
from ottla.storage.compaction.scheduler import Compaction
from ottla.storage.directories.logs import Logs

logger = logging.getLogger(__name__)

_FRESH_S: Final = 1.0
"""A rendered metrics page is reused for this long."""


class Monitoring:
    """Metrics and health of one node."""

    def __init__(self, settings: NodeSettings, runtime: Runtime) -> None:
        self._settings = settings
        self._runtime = runtime
        self.registry = Registry()
        self.requests = RequestMeters()
        self.request_log = RequestLog(self.requests)
        self.disk = TimedDisk()
        self.ports: list[int] = []
        self._servers: list[HttpServer] = []
        self._monitor: EventLoopMonitor | None = None
        self._topics: TopicTrafficMeters | None = None
        self._expirations: Expirations | None = None
        self._lifecycle: BrokerLifecycle | None = None
        self._metadata: MetadataPublisher | None = None
        self._quorum: QuorumDriver | None = None
        self._states: TopicStates | None = None
        self._text = Answer("")
        self._text_at = -_FRESH_S
        for source in (self.requests.families, self.disk.families, process_families):
            self.registry.collect(source)
        self.registry.gauge("ottla_info", "1 with the version as the label.", lambda: 1, {"version": __version__})
        self.registry.gauge("kafka_server_kafkaserver_brokerstate", "1 starting, 3 running, 6 stopping.", self._state)

    async def start(self, pools: Sequence[RequestWorkers], listeners: Sequence[Listener]) -> None:
        """Open the HTTP ports. `listeners` may still be empty."""
        monitor = self._monitor = EventLoopMonitor(
            self._runtime.loop, {pool.role: pool.request_channel for pool in pools}
        )
        monitor.each_minute += [self.requests.start_minute, self.disk.start_minute]
        self.registry.collect(monitor.families)
        watch_network(self.registry, pools, listeners)
        self.request_log.refresh()
        addresses = self._settings[METRICS_LISTENER]
        assert isinstance(addresses, tuple)
        for address in map(parse_address, addresses):
            server = HttpServer(
                {"/metrics": self._metrics, "/healthz": self._healthz, "/livez": lambda: Answer("ok\n")},
                lookups={"/topics": self._topic_states},
            )
            self.ports.append(await server.start(address.host, address.port))
            self._servers.append(server)
            logger.info("serving metrics at http://%s/metrics", address._replace(port=self.ports[-1]))
        monitor.start()

    async def stop(self) -> None:
        """Close the HTTP ports."""
        if self._monitor is not None:
            self._monitor.stop()
        for server in self._servers:
            await server.stop()

    def watch_logs(self, logs: Logs, compaction: Compaction) -> None:
        watch_logs(self.registry, logs, compaction, each_partition=self._settings.flag(METRICS_PARTITIONS))

    def watch_broker(self, broker: BrokerNode) -> None:
        watch_broker(self.registry, broker)
        topics = self._topics = TopicTrafficMeters(broker.partitions)
        self._expirations = broker.expirations
        self.registry.collect(topics.families)
        self.requests.response_observers |= {
            ApiKey.PRODUCE: topics.count_produce_response,
            ApiKey.FETCH: topics.count_fetch_response,
        }
        remember = watch_coordinators(
            self.registry,
            {"group": broker.groups, "transaction": broker.transactions.shards, "share": broker.sharing.shards},
        )
        if self._monitor is not None:
            self._monitor.each_minute += [topics.measure_growth, remember]

    def watch_replication(self, replication: Replication) -> None:
        watch_replication(self.registry, replication.fetchers, replication.isr_changes)

    def watch_quorum(
        self, quorum: QuorumDriver, metadata: MetadataPublisher, controller: ActiveController | None
    ) -> None:
        self._quorum, self._metadata = quorum, metadata
        watch_metadata(self.registry, metadata, quorum, self._runtime.now_ms)
        metadata.subscribers.append(lambda update: self._forget(update.changes.topics_deleted))
        if controller is not None:
            watch_controller(self.registry, controller)
            self._states = TopicStates(controller.states, lambda: controller.is_active)
            times = controller.machine.times
            times.remember(perf_counter_ns())
            if self._monitor is not None:
                self._monitor.each_minute.append(lambda: times.remember(perf_counter_ns()))
        elif self._settings[METRICS_LISTENER]:
            states, loop = StateTracker(), self._runtime.loop
            states.follow(Changes.between(EMPTY, metadata.image))

            def follow(update: Update) -> None:
                """Follow outside the publisher: an error in metrics must not stop the node."""
                loop.call_soon(states.follow, update.changes)

            metadata.subscribers.append(follow)
            self._states = TopicStates(states, lambda: False)

    def watch_quotas(self, exempt_time: Callable[[], float]) -> None:
        self.registry.gauge(
            "kafka_server_request_exempt_request_time",
            "Percentage of a thread's time spent on requests that are exempt from request quotas.",
            exempt_time,
        )

    def _forget(self, topics: Sequence[Topic]) -> None:
        """Drop the metrics of deleted topics."""
        if self._topics is not None and self._expirations is not None:
            self._topics.forget(topics)
            for topic in topics:
                self._expirations.forget(topic.name, len(topic.partitions))

    def watch_lifecycle(self, lifecycle: BrokerLifecycle) -> None:
        self._lifecycle = lifecycle

    def begin(self) -> None:
        """Start the metrics of topics when clients can connect."""
        if self._topics is not None:
            self._topics.start()

    def problem(self) -> str | None:
        """Return why the node is not ready; None if it is ready."""
        quorum, metadata, lifecycle = self._quorum, self._metadata, self._lifecycle
        if quorum is None or metadata is None:
            return "the node is starting"
        if quorum.is_stopped:
            return "the node is stopping"
        if quorum.consensus.leader_id < 0:
            return "no controller is known"
        if missing := behind(metadata, quorum):
            return f"{missing} metadata records are not applied yet"
        if not self._settings.is_broker:
            return None
        if lifecycle is None or lifecycle.epoch < 0:
            return "the broker is not registered"
        if lifecycle.is_fenced or not metadata.image.is_alive(self._settings.node_id):
            return "the broker is fenced"
        if silence_s := lifecycle.silence_s:
            return f"the controller has answered no heartbeat of the broker for {silence_s:.0f} s"
        return None

    def _state(self) -> int:
        if self._quorum is not None and self._quorum.is_stopped:
            return 6
        return 1 if self.problem() else 3

    def _healthz(self) -> Answer:
        problem = self.problem()
        return Answer("ok\n") if problem is None else Answer(f"{problem}\n", HTTPStatus.SERVICE_UNAVAILABLE)

    def _topic_states(self, query: Mapping[str, str]) -> Answer:
        if self._states is None:
            return Answer("the node is starting\n", HTTPStatus.SERVICE_UNAVAILABLE)
        return self._states(query)

    def _metrics(self) -> Answer:
        now = monotonic()
        if now - self._text_at >= _FRESH_S:
            self._text = Answer(self.registry.render(), content_type=CONTENT_TYPE)
            self._text_at = now
        return self._text
