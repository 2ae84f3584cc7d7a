"""A node: creates its parts, connects them, and starts and stops them.

start    lock the directories, formatting them if needed → load plug-ins → load the logs → bind the listeners
         → join the quorum → register the broker → catch up until unfenced → accept clients
stop     controlled shutdown → disconnect clients → leave the quorum → close the logs, which marks them clean
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from ottla.config.node_settings import NodeSettings
from ottla.metadata.consensus.effects import RoleChanged
from ottla.metadata.controller.view import ControllerOptions
from ottla.metadata.image.image import Image
from ottla.metadata.runtime.active_controller import ActiveController
from ottla.metadata.runtime.bootstrap import read_bootstrap
from ottla.metadata.runtime.metadata_log import MetadataLog
from ottla.metadata.runtime.publisher import MetadataPublisher
from ottla.metadata.runtime.quorum_config import build_consensus_config, static_voters
from ottla.metadata.runtime.quorum_driver import QuorumDriver
from ottla.node.access_control import AccessControl
from ottla.node.broker_lifecycle import RegistrationFailed
from ottla.node.broker_liveness import BrokerLivenessMonitor
from ottla.node.broker_server import BrokerServer
from ottla.node.controller_access import ControllerAccess
from ottla.node.controller_listener import controller_dispatch
from ottla.node.controller_registration import ControllerRegistration
from ottla.node.directories import Directories, NodeFailed
from ottla.node.dynamic_settings import DynamicSettings
from ottla.node.listener_security import ListenerSecurity
from ottla.node.maintenance import Maintenance
from ottla.node.monitoring import Monitoring
from ottla.node.plugins import Plugins
from ottla.node.quorum_departure import leave_quorum
from ottla.node.quorum_peers import QuorumPeers
from ottla.node.reconfiguration import Reconfiguration
from ottla.node.socket_server import SocketServer
from ottla.replication.runtime import Runtime
from ottla.storage.compaction.scheduler import Compaction
from ottla.storage.directories.random_ids import random_id
from ottla.storage.log_environment import LogEnvironment

logger = logging.getLogger(__name__)


class Node:
    """A node of the cluster: broker, controller, or both."""

    def __init__(self, settings: NodeSettings, runtime: Runtime) -> None:
        self.settings = settings
        self._runtime = runtime
        self.failed: asyncio.Future[NodeFailed] = runtime.loop.create_future()
        """Done when the node cannot continue."""
        self.monitoring = Monitoring(settings, runtime)
        self._directories = Directories(settings, self.monitoring.disk)
        self.cluster_id = self._directories.cluster_id
        self.logs = self._directories.logs(runtime, lambda directory, error: self._broker.directory_failed())
        self._metadata = MetadataPublisher(
            background=runtime.threads,
            now_ms=runtime.now_ms,
            snapshot_bytes=settings.number("metadata.log.max.record.bytes.between.snapshots"),
            snapshot_interval_ms=settings.number("metadata.log.max.snapshot.interval.ms"),
        )
        self._dynamic = DynamicSettings(settings)
        self._plugins = Plugins(settings)
        self._security = ListenerSecurity(settings, lambda: self._metadata.image, runtime.now_ms)
        self._server = SocketServer(settings, runtime, self._security)
        self.ports = self._server.ports
        self._access_control = AccessControl(settings, self._server.connections, runtime)
        self._controller_access = ControllerAccess(runtime.loop, settings.node_id, self._security.to_controllers)
        self._controller_access.throttling = self._access_control.throttling
        self._peers = QuorumPeers(runtime.loop, settings.node_id, self._security.to_controllers)
        self._quorum: QuorumDriver | None = None
        self._controller: ActiveController | None = None
        self._broker = BrokerServer(
            settings,
            runtime,
            self.logs,
            self._metadata,
            self._dynamic,
            self._controller_access,
            self._security,
            self._server.pools.broker,
        )
        self._metadata.subscribers += [self._access_control.on_update, self._broker.on_update]
        self._loading: asyncio.Future[None] | None = None
        compaction = Compaction(self.logs)
        self._maintenance = Maintenance(settings, runtime, self.logs, compaction, self._server.listeners)
        self.monitoring.watch_quotas(self._access_control.exempt_time)
        self.monitoring.watch_logs(self.logs, compaction)
        self._reconfiguration = Reconfiguration(
            self._server.pools.served, self._server.listeners, self.logs, compaction, self._maintenance
        )
        self._reconfiguration.apply(settings, settings)
        self._dynamic.checks.append(self._security.check)
        self._dynamic.on_change += [
            self._reconfiguration.apply,
            self._security.apply,
            self._broker.replication.reconfigure,
        ]

    async def start(self) -> None:
        """Return when clients can use the node."""
        try:
            await self._start()
        except (NodeFailed, RegistrationFailed) as failed:
            await self.stop()
            raise NodeFailed(str(failed)) from failed

    async def _start(self) -> None:
        settings, runtime, server, plugins = self.settings, self._runtime, self._server, self._plugins
        await plugins.start()
        self._controller_access.policies, self._controller_access.acl_store = plugins.policies, plugins.authorizer
        self._access_control.authorizer = self._access_control.authorizer or plugins.authorizer
        await self.monitoring.start(server.pools.served, server.listeners)
        settings_of = partial(self._dynamic.log_settings, Image())
        self._loading = runtime.loop.run_in_executor(None, self.logs.load, settings_of, runtime.now_ms())
        await asyncio.shield(self._loading)
        self._bind()
        await plugins.start_authorizer(self.cluster_id, self.ports, runtime.spawn)
        self._join_quorum().start()
        await plugins.authorizer_ready(*settings.controller_listener_names)
        server.start_controller_listeners()
        if settings.is_broker:
            lifecycle = self._broker.create_lifecycle(self.cluster_id, self.ports)
            self.monitoring.watch_lifecycle(lifecycle)
            await plugins.authorizer_ready(*self.ports)
            await lifecycle.start(server.listen)
            self.monitoring.begin()
            self._broker.start()
            server.start()
        self._reconfiguration.is_serving = True
        self._maintenance.start()

    def _bind(self) -> None:
        authorizer = self._access_control.authorizer
        broker = self._broker.dispatch(
            self.cluster_id,
            authorizer=authorizer,
            assignors=self._plugins.assignors,
            monitoring=self.monitoring,
        )
        controller = controller_dispatch(
            self.settings,
            self.cluster_id,
            lambda: self._metadata.image,
            self._controller_access,
            authorizer,
            spawn=self._server.pools.controller.spawn,
            after=self._runtime.completions.run,
            watch=self.monitoring.requests.watch,
            levels_changed=self.monitoring.request_log.refresh,
        )
        self._access_control.enforce_on(broker, controller)
        self._server.bind(broker, controller)

    async def stop(self) -> None:
        """Stop in a fixed order, whatever part of the node has started."""
        run_in_executor = partial(self._runtime.loop.run_in_executor, None)
        if self._loading is not None:
            await asyncio.wait([self._loading])
        self._maintenance.stop()
        self._reconfiguration.is_serving = False
        lifecycle = self._broker.lifecycle
        epoch = -1 if lifecycle is None else await lifecycle.stop()
        self._broker.replication.stop()
        self._server.close_broker_listeners()
        self._broker.coordinators.close()
        if self._quorum is not None:
            image, node_id = lambda: self._metadata.image, self.settings.node_id
            await leave_quorum(self._quorum, self._controller, self._peers, image, node_id)
        await self._plugins.stop()
        self._server.close()
        self._controller_access.link.close()
        self._peers.close()
        # Work in threads must end before the logs are closed: both sync and write the same files.
        await run_in_executor(self._runtime.threads.close)
        await run_in_executor(self._server.pools.close)
        if self._quorum is not None:
            self._quorum.log.close()
        await run_in_executor(self.logs.close, epoch)
        await self.monitoring.stop()
        self._directories.release()

    # -- metadata --

    def _join_quorum(self) -> QuorumDriver:
        settings, runtime, disk = self.settings, self._runtime, self._directories.disk
        environment = LogEnvironment(
            disk=disk, background=runtime.threads, random=runtime.random, on_failure=self._metadata_failed
        )
        log = MetadataLog.open(settings, environment, runtime.now_ms())
        meta = self._directories.metas[settings.metadata_log_dir]
        config = build_consensus_config(settings, self.cluster_id, meta.directory_id or random_id(), self.ports)
        quorum = self._quorum = self._controller_access.quorum = QuorumDriver(
            config,
            log,
            static_voters(settings),
            disk=disk,
            timers=runtime.loop,
            peers=self._peers,
            random=runtime.random,
            now_ms=runtime.now_ms,
            on_role=self._on_role,
            on_committed=self._on_committed,
        )
        if settings.is_controller:
            self._create_controller(quorum)
        self._metadata.follow(quorum)
        self.monitoring.watch_quorum(quorum, self._metadata, self._controller)
        return quorum

    def _create_controller(self, quorum: QuorumDriver) -> None:
        settings, runtime, access = self.settings, self._runtime, self._controller_access
        controller = self._controller = access.controller = ActiveController(
            quorum,
            self._metadata,
            ControllerOptions(
                node_id=settings.node_id,
                cluster_id=self.cluster_id,
                settings=settings.given,
                supported=settings.supported_features,
            ),
            read_bootstrap(self._directories.disk, settings.metadata_log_dir),
            session_timeout_ms=settings.number("broker.session.timeout.ms"),
            loop=runtime.loop,
            random=runtime.random,
            now_ms=runtime.now_ms,
        )
        liveness = access.broker_liveness = BrokerLivenessMonitor(
            settings, controller, quorum, self._metadata, runtime, is_own_registration=self._broker.is_own_registration
        )
        liveness.watch(self._server.listeners)
        registration = ControllerRegistration(settings, self.ports, access.ask, runtime.spawn)
        self._metadata.subscribers.append(registration.on_update)

    def _on_role(self, change: RoleChanged) -> None:
        self._controller_access.on_role(change)
        if self._controller is not None:
            self._controller.on_role(change)

    def _on_committed(self, high_watermark: int) -> None:
        try:
            self._metadata.on_committed(high_watermark)
            if self._controller is not None:
                self._controller.on_committed(high_watermark)
        except Exception as error:  # noqa: BLE001 (after any error the node's image is no longer the cluster's)
            self._fail("the committed metadata cannot be applied", error)

    def _metadata_failed(self, error: OSError) -> None:
        self._runtime.loop.call_soon_threadsafe(self._fail, "the metadata log cannot be written", error)

    def _fail(self, what: str, error: Exception) -> None:
        """Report a fatal error. The process exits without a clean stop, and recovers its logs when it starts again."""
        logger.critical("%s; the node exits", what, exc_info=error)
        if not self.failed.done():
            self.failed.set_result(NodeFailed(f"{what}: {error}"))
