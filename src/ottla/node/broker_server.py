"""The broker of a node: its replicas and coordinators, its requests, and its membership in the cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from ottla.broker.authorization.actions import Authorizer
from ottla.broker.handlers.registry import BROKER_ENDPOINTS, advertised_apis
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.dispatch import Dispatch
from ottla.broker.requests.request_workers import RequestWorkers
from ottla.broker.telemetry.pushed_metrics import PushedMetrics
from ottla.config.node_settings import NodeSettings
from ottla.config.settings.ottla_settings import METRICS_CLIENTS, METRICS_LISTENER
from ottla.coordinators.groups.consumer.assignor import Assignor
from ottla.metadata.image.changes import Changes
from ottla.metadata.image.image import Image
from ottla.metadata.image.loader import Update
from ottla.metadata.image.values import Broker
from ottla.metadata.runtime.publisher import MetadataPublisher
from ottla.node.broker_lifecycle import BrokerLifecycle
from ottla.node.controller_access import ControllerAccess
from ottla.node.controller_link import HEARTBEATS
from ottla.node.coordinators import Coordinators, new_member_id
from ottla.node.dynamic_settings import DynamicSettings
from ottla.node.listener_security import ListenerSecurity
from ottla.node.memory import MemoryTrimmer
from ottla.node.monitoring import Monitoring
from ottla.node.port_probe import is_refused
from ottla.node.replication import Replication
from ottla.node.topic_creation import TopicCreation
from ottla.protocol.messages.apis import Listeners
from ottla.replication.directory_moves import DirectoryMoves
from ottla.replication.fetch_sessions import SessionCache
from ottla.replication.partitions import Partitions
from ottla.replication.replica_selector import RACK_AWARE
from ottla.replication.runtime import Runtime
from ottla.replication.unavailable_leaders import UnavailableLeaders
from ottla.storage.directories.logs import Logs


class BrokerServer:
    """The broker of one node. On a node that is only a controller it holds no partitions and never registers."""

    def __init__(
        self,
        settings: NodeSettings,
        runtime: Runtime,
        logs: Logs,
        metadata: MetadataPublisher,
        dynamic: DynamicSettings,
        controller: ControllerAccess,
        security: ListenerSecurity,
        workers: RequestWorkers,
    ) -> None:
        self._settings = settings
        self._runtime = runtime
        self._logs = logs
        self._metadata = metadata
        self._dynamic = dynamic
        self._controller = controller
        self._workers = workers
        self.lifecycle: BrokerLifecycle | None = None
        """None until the broker registers."""
        self._is_registered = False
        """Whether the metadata has the registration of this process."""
        self.partitions = Partitions(settings.node_id, logs, runtime, settings_of=dynamic.log_settings)
        self.coordinators = Coordinators(
            settings,
            self.partitions,
            self._current_setting,
            runtime,
            ask_controller=controller.ask,
            broker_epoch=self.epoch,
            security=security.between_brokers,
            in_thread=workers.in_thread,
        )
        self.unavailable_leaders = UnavailableLeaders(
            settings.inter_broker_listener_name,
            is_refused,
            lambda: self.replication.fetchers.disconnected_brokers,
            runtime,
        )
        self._moves = DirectoryMoves(
            self.partitions,
            runtime,
            ask_controller=controller.ask,
            broker_epoch=self.epoch,
            max_bytes_per_s=lambda: dynamic.move_bytes_per_s(metadata.image),
        )
        self.replication = Replication(
            settings,
            self.partitions,
            runtime,
            ask_controller=controller.ask,
            broker_epoch=self.epoch,
            on_lost=self.unavailable_leaders.on_connection_lost,
            security=security.between_brokers,
        )

    def epoch(self) -> int:
        """Return the broker epoch; -1 before registration."""
        return self.lifecycle.epoch if self.lifecycle is not None else -1

    # -- lifecycle --

    def create_lifecycle(self, cluster_id: str, ports: Mapping[str, int]) -> BrokerLifecycle:
        """Create the lifecycle of this process, and send heartbeats at once whenever the controller may change."""
        controller = self._controller
        lifecycle = self.lifecycle = BrokerLifecycle(
            self._settings, cluster_id, self._logs, self._metadata, ports, controller.ask
        )
        self._dynamic.on_change.append(lifecycle.on_settings)
        self._metadata.subscribers.append(lifecycle.on_update)
        controller.on_leader.append(lifecycle.send_heartbeat_soon)
        controller.link.on_lost.append(
            lambda traffic: lifecycle.send_heartbeat_soon() if traffic == HEARTBEATS else None
        )
        return lifecycle

    def start(self) -> None:
        """Begin the background work of a broker in service."""
        self._moves.resume()
        self.replication.start()

    def directory_failed(self) -> None:
        """Take replicas offline after a log directory failed, and report it to the controller. Safe in any thread."""
        self._runtime.loop.call_soon_threadsafe(self.partitions.take_offline)
        if self.lifecycle is not None:
            self._runtime.loop.call_soon_threadsafe(self.lifecycle.send_heartbeat_soon)

    # -- metadata --

    def on_update(self, update: Update) -> None:
        """Apply new metadata: settings first, then replicas, then coordinators."""
        self._dynamic.apply(update.changes)
        changes = self._changes_to_apply(update)
        if changes is not None:
            self.replication.apply(changes)
            self.partitions.apply(changes)
            self.unavailable_leaders.apply(changes)
            self.coordinators.apply(changes)

    def _changes_to_apply(self, update: Update) -> Changes | None:
        """Return the changes for the replicas; None until the metadata has the registration of this process.

        Before that, the metadata may still name this broker as a leader that it no longer is.
        """
        if self._is_registered:
            return update.changes
        registered = update.image.brokers.get(self._settings.node_id)
        if registered is None or not self.is_own_registration(registered):
            self.partitions.image = self.partitions.rules.image = update.image
            return None
        self._is_registered = True
        self.partitions.mark_stray_logs(update.image)
        return Changes.between(Image(), update.image)

    def is_own_registration(self, broker: Broker) -> bool:
        """Whether a broker with this node's id was registered by this process."""
        return self.lifecycle is not None and broker.incarnation_id == self.lifecycle.incarnation

    # -- requests --

    def dispatch(
        self,
        cluster_id: str,
        *,
        authorizer: Authorizer | None,
        assignors: Mapping[str, Assignor],
        monitoring: Monitoring,
    ) -> Dispatch[BrokerNode]:
        """Return the APIs of the broker's listeners."""
        broker = self._node(cluster_id, authorizer, assignors, monitoring.request_log.refresh)
        monitoring.watch_broker(broker)
        monitoring.watch_replication(self.replication)
        return Dispatch(
            broker,
            BROKER_ENDPOINTS,
            Listeners.BROKER,
            spawn=self._workers.spawn,
            after=self._runtime.completions.run,
            watch=monitoring.requests.watch,
            unstable=broker.unstable_versions,
            has_guards=authorizer is not None,
        )

    def _node(
        self,
        cluster_id: str,
        authorizer: Authorizer | None,
        assignors: Mapping[str, Assignor],
        levels_changed: Callable[[], None],
    ) -> BrokerNode:
        settings, runtime, coordinators, controller = self._settings, self._runtime, self.coordinators, self._controller
        topics = TopicCreation(settings, controller, runtime.spawn)
        pushed = PushedMetrics(settings.number(METRICS_CLIENTS) if settings[METRICS_LISTENER] else 0)
        in_thread: Callable[..., Awaitable[object]] = MemoryTrimmer(
            runtime.loop.call_later, self._workers.in_thread
        ).run
        coordinators.sharing.states.create_topic = topics.create
        return BrokerNode(
            unstable_versions=settings.flag("unstable.api.versions.enable"),
            levels_changed=levels_changed,
            node_id=settings.node_id,
            cluster_id=cluster_id,
            partitions=self.partitions,
            sessions=SessionCache(
                slots=settings.fetch_session_slots, random_id=lambda: runtime.random.randrange(1, 1 << 31)
            ),
            moves=self._moves,
            unavailable_leaders=self.unavailable_leaders,
            producer_ids=coordinators.producer_ids,
            transactions=coordinators.transactions,
            groups=coordinators.groups,
            sharing=coordinators.sharing,
            share_groups=coordinators.share_groups,
            completions=runtime.completions,
            timer=runtime.timer,
            now_ms=runtime.now_ms,
            setting=self._current_setting,
            assignors=assignors,
            new_member_id=new_member_id,
            random=runtime.random,
            supported_features=settings.supported_features,
            fetch_max_bytes=settings.fetch_max_bytes,
            max_described_partitions=settings.number("max.request.partition.size.limit"),
            advertised=advertised_apis(BROKER_ENDPOINTS, with_telemetry=pushed.is_open),
            pushed=pushed,
            ask_controller=controller.ask,
            decide=controller.forward,
            create_missing_topics=topics.create_for_client if settings.flag("auto.create.topics.enable") else None,
            create_internal_topic=topics.create,
            create_streams_topics=topics.create_for_streams,
            given=settings.given,
            check_broker_settings=lambda name, changed: self._dynamic.check(self._metadata.image, name, changed),
            leader_throttle=self.replication.leader_throttle,
            reads_by_rack=settings.text("replica.selector.class") == RACK_AWARE,
            kraft_version=controller.kraft_version,
            authorizer=authorizer,
            in_thread=in_thread,
            controller_versions=controller.controller_versions,
        )

    def _current_setting(self, name: str) -> object:
        return self._dynamic.current[name]
