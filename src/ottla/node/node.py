"""One node: everything put together, started in order and stopped in order.

start    directories locked and formatted if need be → plug-ins made → logs opened → sockets bound → quorum joined
         → broker registered → caught up and unfenced → clients let in
stop     controlled shutdown → clients sent away → quorum left → logs closed → directories marked clean
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

from ottla.broker.authorization.guards import OF_BROKERS
from ottla.broker.handlers.broker_table import BROKER_ENDPOINTS, advertised_apis
from ottla.broker.metrics.requests import on_sent
from ottla.broker.network.connection import Connection
from ottla.broker.network.listener import Connections, Listener
from ottla.broker.network.request import Request
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Client
from ottla.broker.requests.dispatch import Dispatch
from ottla.broker.requests.request_workers import Pools
from ottla.broker.telemetry.pushed import PushedMetrics
from ottla.config.node_settings import NodeSettings
from ottla.config.settings.ottla_settings import METRICS_CLIENTS, METRICS_LISTENER
from ottla.metadata.consensus.effects import RoleChanged
from ottla.metadata.controller.view import ControllerOptions
from ottla.metadata.image.changes import Changes
from ottla.metadata.image.image import Image
from ottla.metadata.image.loader import Update
from ottla.metadata.image.values import Broker
from ottla.metadata.runtime.active_controller import ActiveController
from ottla.metadata.runtime.bootstrap import read_bootstrap
from ottla.metadata.runtime.membership import consensus_config, static_voters
from ottla.metadata.runtime.metadata_log import MetadataLog
from ottla.metadata.runtime.publisher import MetadataPublisher
from ottla.metadata.runtime.quorum import Quorum
from ottla.node.access_control import AccessControl
from ottla.node.broker_lifecycle import Lifecycle, RegistrationFailed
from ottla.node.broker_liveness import BrokerLivenessMonitor
from ottla.node.controller_access import ControllerAccess
from ottla.node.controller_link import HEARTBEATS
from ottla.node.controller_listener import controller_dispatch
from ottla.node.controller_registration import ControllerRegistration
from ottla.node.coordinators import Coordinators, new_member_id
from ottla.node.directories import Directories, NodeFailed
from ottla.node.dynamic_settings import DynamicSettings
from ottla.node.listener_security import Handle, ListenerSecurity
from ottla.node.maintenance import Maintenance
from ottla.node.memory import Memory
from ottla.node.observation import Observation
from ottla.node.plugins import Plugins
from ottla.node.port_probe import is_refused
from ottla.node.quorum_departure import leave_quorum
from ottla.node.quorum_peers import QuorumPeers
from ottla.node.reconfiguration import Reconfiguration
from ottla.node.replication import Replication
from ottla.node.topic_creation import TopicCreation
from ottla.protocol.messages.apis import Listeners
from ottla.replication.directory_moves import Moves
from ottla.replication.fetch_sessions import SessionCache
from ottla.replication.partitions import Partitions
from ottla.replication.replica_selector import RACK_AWARE
from ottla.replication.runtime import Runtime
from ottla.replication.unavailable_leaders import UnavailableLeaders
from ottla.storage.compaction.scheduler import Compaction
from ottla.storage.directories.log_directory import LogDirectory
from ottla.storage.directories.logs import Logs
from ottla.storage.directories.random_ids import random_id
from ottla.storage.log_environment import LogEnvironment

logger = logging.getLogger(__name__)


class Node:
    """A node of the cluster: broker, controller, or both."""

    def __init__(self, settings: NodeSettings, runtime: Runtime) -> None:
        self.settings = settings
        self._runtime = runtime
        self.failed: asyncio.Future[NodeFailed] = runtime.loop.create_future()
        """Done when the node cannot go on."""
        self.observation = Observation(settings, runtime)
        self._disk = self.observation.disk
        self._directories = Directories(settings, self._disk)
        self._metas = self._directories.metas
        self.cluster_id = next(iter(self._metas.values())).cluster_id
        self._pools = Pools(self._handle, settings, runtime)
        self._counts = Connections()
        self._handlers: dict[str, Handle] = {}
        self._listeners: list[Listener] = []
        self.ports: dict[str, int] = {}
        self.logs = Logs([self._log_directory(path) for path in settings.log_dirs if path in self._metas])
        self._metadata = MetadataPublisher(
            background=runtime.threads,
            now_ms=runtime.now_ms,
            snapshot_bytes=settings.number("metadata.log.max.record.bytes.between.snapshots"),
            snapshot_interval_ms=settings.number("metadata.log.max.snapshot.interval.ms"),
        )
        self._dynamic = DynamicSettings(settings)
        self._partitions = Partitions(settings.node_id, self.logs, runtime, settings_of=self._dynamic.log_settings)
        self._securing = ListenerSecurity(settings, lambda: self._metadata.image, runtime.now_ms)
        self._rights = AccessControl(settings, self._counts, runtime)
        self.observation.watch_quotas(self._rights.exempt_time)
        self._metadata.subscribers += [self._rights.on_update, self._publish]
        self._plugins = Plugins(settings)
        self._access = ControllerAccess(runtime.loop, settings.node_id, self._securing.to_controllers)
        self._access.throttling = self._rights.throttling
        self._ask = self._access.ask
        self._make_services(settings, runtime)
        self._controller: ActiveController | None = None
        self._quorum: Quorum | None = None
        self._peers = QuorumPeers(runtime.loop, settings.node_id, self._securing.to_controllers)
        self._lifecycle: Lifecycle | None = None
        self._is_registered = False
        self._loading: asyncio.Future[None] | None = None
        compaction = Compaction(self.logs)
        self._upkeep = Maintenance(settings, runtime, self.logs, compaction, self._listeners)
        self.observation.watch_logs(self.logs, compaction)
        self._reconfiguration = Reconfiguration(
            self._pools.served, self._listeners, self.logs, compaction, self._upkeep
        )
        self._reconfiguration.apply(settings, settings)
        self._dynamic.checks.append(self._securing.check)
        self._dynamic.on_change += [self._reconfiguration.apply, self._securing.apply, self._replication.reconfigure]

    def _make_services(self, settings: NodeSettings, runtime: Runtime) -> None:
        """What a broker does with its partitions beside answering for them."""
        self._coordinators = Coordinators(
            settings,
            self._partitions,
            lambda name: self._dynamic.current[name],
            runtime,
            ask_controller=lambda request: self._ask(request),
            broker_epoch=self._broker_epoch,
            security=self._securing.between_brokers,
            in_thread=self._pools.broker.in_thread,
        )
        self._departures = UnavailableLeaders(
            settings.inter_broker_listener_name,
            is_refused,
            lambda: self._replication.fetchers.hung_up,
            runtime,
        )
        self._moves = Moves(
            self._partitions,
            runtime,
            ask_controller=self._ask,
            broker_epoch=self._broker_epoch,
            max_bytes_per_s=lambda: self._dynamic.move_bytes_per_s(self._metadata.image),
        )
        self._replication = Replication(
            settings,
            self._partitions,
            runtime,
            ask_controller=self._ask,
            broker_epoch=self._broker_epoch,
            on_lost=self._departures.lost,
            security=self._securing.between_brokers,
        )

    async def start(self) -> None:
        """Return when clients can use the node."""
        try:
            await self._start()
        except (NodeFailed, RegistrationFailed) as failed:
            await self.stop()
            raise NodeFailed(str(failed)) from failed

    async def _start(self) -> None:
        await self._plugins.start()
        self._access.policies, self._access.keeper = self._plugins.policies, self._plugins.authorizer
        self._rights.authorizer = self._rights.authorizer or self._plugins.authorizer
        await self.observation.start(self._pools.served, self._listeners)
        settings_of = partial(self._dynamic.log_settings, Image())
        self._loading = self._runtime.loop.run_in_executor(None, self.logs.load, settings_of, self._runtime.now_ms())
        await asyncio.shield(self._loading)
        self._make_listeners()
        await self._plugins.start_authorizer(self.cluster_id, self.ports, self._runtime.spawn)
        self._join_quorum().start()
        await self._plugins.authorizer_ready(*self.settings.controller_listener_names)
        for listener in self._listeners:
            if listener.name in self.settings.controller_listener_names:
                listener.start()
        if self.settings.is_broker:
            self._lifecycle = Lifecycle(
                self.settings, self.cluster_id, self.logs, self._metadata, self.ports, self._ask
            )
            self._dynamic.on_change.append(self._lifecycle.on_settings)
            self.observation.watch_lifecycle(self._lifecycle)
            self._follow_controller(self._lifecycle)
            await self._plugins.authorizer_ready(*self.ports)
            await self._lifecycle.start(self._open_to_clients)
            self.observation.begin()
            self._moves.resume()
            self._replication.start()
            for listener in self._listeners:
                listener.start()
        self._reconfiguration.is_serving = True
        self._upkeep.start()

    def _open_to_clients(self) -> None:
        """Let clients wait for the little that is missing; before that they are better off elsewhere."""
        for listener in self._listeners:
            listener.listen()

    async def stop(self) -> None:
        """Stop in order, however far the start has come."""
        if self._loading is not None:
            await asyncio.wait([self._loading])
        self._upkeep.stop()
        self._reconfiguration.is_serving = False
        epoch = -1
        if self._lifecycle is not None:
            epoch = await self._lifecycle.stop()
        self._replication.stop()
        for listener in self._listeners:
            if listener.name not in self.settings.controller_listener_names:
                listener.close()
        self._coordinators.close()
        if self._quorum is not None:
            image, node_id = lambda: self._metadata.image, self.settings.node_id
            await leave_quorum(self._quorum, self._controller, self._peers, image, node_id)
        await self._plugins.stop()
        for listener in self._listeners:
            listener.close()
        self._access.link.close()
        self._peers.close()
        # Work under way must be over before logs are closed: both sync, and write the same files.
        await self._runtime.loop.run_in_executor(None, self._runtime.threads.close)
        await self._runtime.loop.run_in_executor(None, self._pools.close)
        if self._quorum is not None:
            self._quorum.log.close()
        await self._runtime.loop.run_in_executor(None, self.logs.close, epoch)
        await self.observation.stop()
        self._directories.release()

    # -- directories --

    def _log_directory(self, path: str) -> LogDirectory:
        return LogDirectory(
            path,
            self._metas[path],
            disk=self._disk,
            background=self._runtime.threads,
            random=self._runtime.random,
            on_failure=self._directory_failed,
        )

    def _directory_failed(self, directory: LogDirectory, error: OSError) -> None:
        """Let the controller know at once, which then finds other leaders. Logs are opened in a thread."""
        self._runtime.loop.call_soon_threadsafe(self._partitions.take_offline)
        if self._lifecycle is not None:
            self._runtime.loop.call_soon_threadsafe(self._lifecycle.beat_now)

    # -- sockets --

    def _make_listeners(self) -> None:
        settings = self.settings
        of_broker = self._broker_dispatch()
        of_controller = controller_dispatch(
            settings,
            self.cluster_id,
            lambda: self._metadata.image,
            self._access,
            self._rights.authorizer,
            spawn=self._pools.controller.spawn,
            after=self._runtime.completions.run,
            watch=self.observation.requests.watch,
            levels_changed=self.observation.request_log.refresh,
        )
        self._rights.throttle(of_broker, of_controller)
        for endpoint in settings.listeners:
            is_of_controller = endpoint.name in settings.controller_listener_names
            listener = Listener(
                self._runtime.loop,
                endpoint.name,
                (self._pools.controller if is_of_controller else self._pools.broker).intake,
                limits=settings.limits_of(endpoint.name),
                counts=self._counts,
                on_sent=on_sent,
                tls=self._securing.context_of(endpoint.name),
            )
            self.ports[endpoint.name] = listener.bind(endpoint.host, endpoint.port)
            self._listeners.append(listener)
            dispatch: Dispatch[Any] = of_controller if is_of_controller else of_broker
            self._handlers[endpoint.name] = self._securing.gated(endpoint.name, dispatch)
            if not is_of_controller:
                listener.on_closed = partial(self._disconnected, of_broker.node)

    def _disconnected(self, broker: BrokerNode, connection: Connection) -> None:
        """A client is gone: what was kept for its connection goes, too."""
        broker.telemetry.forget(connection.session)
        broker.sharing.disconnected(connection.session)

    def _broker_dispatch(self) -> Dispatch[BrokerNode]:
        broker = self._broker_node()
        self.observation.watch_broker(broker)
        self.observation.watch_replication(self._replication)
        return Dispatch(
            broker,
            {endpoint.api.key: endpoint for endpoint in BROKER_ENDPOINTS},
            Listeners.BROKER,
            spawn=self._pools.broker.spawn,
            after=self._runtime.completions.run,
            watch=self.observation.requests.watch,
            unstable=broker.unstable_versions,
            guards=None if broker.authorizer is None else OF_BROKERS,
        )

    def _broker_node(self) -> BrokerNode:
        settings, runtime = self.settings, self._runtime
        topics = TopicCreation(settings, self._access, runtime.spawn)
        pushed = PushedMetrics(settings.number(METRICS_CLIENTS) if settings[METRICS_LISTENER] else 0)
        self._coordinators.sharing.states.create_topic = topics.create
        return BrokerNode(
            unstable_versions=settings.flag("unstable.api.versions.enable"),
            levels_changed=self.observation.request_log.refresh,
            node_id=settings.node_id,
            cluster_id=self.cluster_id,
            partitions=self._partitions,
            sessions=SessionCache(
                slots=settings.fetch_session_slots, random_id=lambda: runtime.random.randrange(1, 1 << 31)
            ),
            moves=self._moves,
            departures=self._departures,
            producer_ids=self._coordinators.producer_ids,
            transactions=self._coordinators.transactions,
            groups=self._coordinators.groups,
            sharing=self._coordinators.sharing,
            share_groups=self._coordinators.share_groups,
            completions=runtime.completions,
            timer=runtime.timer,
            now_ms=runtime.now_ms,
            setting=lambda name: self._dynamic.current[name],
            assignors=self._plugins.assignors,
            new_member_id=new_member_id,
            random=runtime.random,
            supported_features=settings.supported_features,
            fetch_max_bytes=settings.fetch_max_bytes,
            max_described_partitions=settings.number("max.request.partition.size.limit"),
            served=advertised_apis(with_telemetry=pushed.is_open),
            pushed=pushed,
            ask_controller=self._ask,
            forward=self._access.forward,
            create_missing_topics=topics.create_for_client if settings.flag("auto.create.topics.enable") else None,
            create_internal_topic=topics.create,
            create_streams_topics=topics.create_for_streams,
            given=settings.given,
            check_broker_settings=lambda name, changed: self._dynamic.check(self._metadata.image, name, changed),
            leader_throttle=self._replication.leader_throttle,
            reads_by_rack=settings.text("replica.selector.class") == RACK_AWARE,
            kraft_version=self._access.kraft_version,
            authorizer=self._rights.authorizer,
            in_thread=Memory(runtime.loop.call_later, self._pools.broker.in_thread).work,
            controller_versions=self._access.controller_versions,
        )

    def _handle(self, request: Request) -> None:
        connection = request.connection
        client = connection.session
        if not isinstance(client, Client):
            client = connection.session = self._securing.client_of(connection)
        self._handlers[client.listener](request, client)

    # -- metadata --

    def _join_quorum(self) -> Quorum:
        settings, runtime = self.settings, self._runtime
        home = LogEnvironment(
            disk=self._disk, background=runtime.threads, random=runtime.random, on_failure=self._metadata_failed
        )
        log = MetadataLog.of(settings, home, runtime.now_ms())
        meta = self._metas[settings.metadata_log_dir]
        config = consensus_config(settings, self.cluster_id, meta.directory_id or random_id(), self.ports)
        self._quorum = Quorum(
            config,
            log,
            static_voters(settings),
            disk=self._disk,
            timers=runtime.loop,
            peers=self._peers,
            random=runtime.random,
            now_ms=runtime.now_ms,
            on_role=self._on_role,
            on_committed=self._on_committed,
        )
        if settings.is_controller:
            self._controller = ActiveController(
                self._quorum,
                self._metadata,
                ControllerOptions(
                    node_id=settings.node_id,
                    cluster_id=self.cluster_id,
                    settings=settings.given,
                    supported=settings.supported_features,
                ),
                read_bootstrap(self._disk, settings.metadata_log_dir),
                session_timeout_ms=settings.number("broker.session.timeout.ms"),
                loop=runtime.loop,
                random=runtime.random,
                now_ms=runtime.now_ms,
            )
            self._access.controller = self._controller
            absence = BrokerLivenessMonitor(
                settings,
                self._controller,
                self._quorum,
                self._metadata,
                runtime,
                is_own_life=self._is_own_life,
            )
            self._access.absence = absence
            absence.watch(self._listeners)
            registration = ControllerRegistration(settings, self.ports, self._ask, runtime.spawn)
            self._metadata.subscribers.append(registration.on_update)
        self._access.quorum = self._quorum
        self._metadata.follow(self._quorum)
        self.observation.watch_quorum(self._quorum, self._metadata, self._controller)
        return self._quorum

    def _follow_controller(self, lifecycle: Lifecycle) -> None:
        """Let the broker be heard of at once wherever the active controller has not heard of it yet."""
        self._metadata.subscribers.append(lifecycle.on_update)
        self._access.on_leader.append(lifecycle.beat_now)
        self._access.link.on_lost.append(lambda lane: lifecycle.beat_now() if lane == HEARTBEATS else None)

    def _on_role(self, change: RoleChanged) -> None:
        self._access.on_role(change)
        if self._controller is not None:
            self._controller.on_role(change)

    def _on_committed(self, high_watermark: int) -> None:
        try:
            self._metadata.on_committed(high_watermark)
            if self._controller is not None:
                self._controller.on_committed(high_watermark)
        except Exception as error:  # noqa: BLE001 (whatever it is, the node no longer knows what the cluster decided)
            self._fail("what the cluster decided cannot be applied", error)

    def _publish(self, update: Update) -> None:
        self._dynamic.apply(update.changes)
        changes = self._changes_for_broker(update)
        if changes is not None:
            self._replication.apply(changes)
            self._partitions.apply(changes)
            self._departures.apply(changes)
            self._coordinators.apply(changes)

    def _changes_for_broker(self, update: Update) -> Changes | None:
        """What the broker has to act on; nothing before it is registered. What it led in its last life it may have
        lost, and would lead again until the controller has heard of this one."""
        if self._is_registered:
            return update.changes
        known = update.image.brokers.get(self.settings.node_id)
        if known is None or not self._is_own_life(known):
            self._partitions.image = self._partitions.rules.image = update.image
            return None
        self._is_registered = True
        self._partitions.set_aside_strays(update.image)
        return Changes.between(Image(), update.image)

    def _is_own_life(self, broker: Broker) -> bool:
        """Whether a broker that is registered with this node's id is the one in this process."""
        return self._lifecycle is not None and broker.incarnation_id == self._lifecycle.incarnation

    def _broker_epoch(self) -> int:
        return self._lifecycle.epoch if self._lifecycle is not None else -1

    def _metadata_failed(self, error: OSError) -> None:
        self._runtime.loop.call_soon_threadsafe(self._fail, "the metadata log cannot be written", error)

    def _fail(self, what: str, error: Exception) -> None:
        """The node cannot go on: it ends, as it is, and its successor recovers."""
        logger.critical("%s, and the node ends", what, exc_info=error)
        if not self.failed.done():
            self.failed.set_result(NodeFailed(f"{what}: {error}"))
