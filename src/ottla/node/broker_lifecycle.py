"""The life cycle of a broker: registration, heartbeats until it is unfenced and afterwards, controlled shutdown.

A heartbeat is sent every `broker.heartbeat.interval.ms`, and at once when a controller is elected, when the connection
to the controller breaks, and when another broker in controlled shutdown waits until all brokers know.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Final, Protocol

from ottla.config.node_settings import NodeSettings
from ottla.metadata.image.loader import Update
from ottla.metadata.runtime.publisher import MetadataPublisher
from ottla.node.advertised import advertised_features, advertised_listeners
from ottla.protocol.errors import (
    ApiError,
    BrokerIdNotRegistered,
    InconsistentClusterId,
    InvalidRegistration,
    StaleBrokerEpoch,
    UnsupportedVersion,
)
from ottla.protocol.messages.rpc.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.protocol.messages.rpc.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from ottla.protocol.metadata_versions import CORDONED_LOG_DIRS
from ottla.storage.directories.logs import Logs
from ottla.storage.directories.random_ids import random_id

logger = logging.getLogger(__name__)

_RETRY_S: Final = 0.05
_LONGEST_RETRY_S: Final = 1.0
_SHUTDOWN_S: Final = 30.0
_NO_CONTROLLER_S: Final = 3.0
_PERMANENT_ERRORS: Final = (UnsupportedVersion, InconsistentClusterId, InvalidRegistration)
"""Registration errors that a retry cannot fix: the broker does not belong to this cluster, or is not compatible."""


class RegistrationFailed(Exception):
    """The controller refused this broker, or did not answer in time."""


class Ask(Protocol):
    """Sends a request to the active controller."""

    async def __call__(self, request: Any, *, timeout_s: float | None = None) -> Any: ...


class BrokerLifecycle:
    """Registers the broker and sends its heartbeats."""

    def __init__(
        self,
        settings: NodeSettings,
        cluster_id: str,
        logs: Logs,
        metadata: MetadataPublisher,
        ports: Mapping[str, int],
        ask: Ask,
    ) -> None:
        self._settings = settings
        self._cluster_id = cluster_id
        self._logs = logs
        self._metadata = metadata
        self._ports = ports
        self._ask = ask
        self._beating: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._answered_at = monotonic()
        self._session_s = settings.number("broker.session.timeout.ms") / 1000
        self._interval_s = settings.number("broker.heartbeat.interval.ms") / 1000
        self.incarnation = random_id()
        """The incarnation id: identifies this process to the controller before it has a broker epoch."""
        self.epoch = -1
        self.is_fenced = True

    @property
    def silence_s(self) -> float:
        """The time since the last answered heartbeat, if it exceeds `broker.session.timeout.ms`; otherwise 0."""
        silence_s = monotonic() - self._answered_at
        return silence_s if silence_s > self._session_s else 0.0

    async def start(self, on_ready: Callable[[], None]) -> None:
        """Return when the broker is unfenced. Raise RegistrationFailed if it cannot register.

        `on_ready` is called once the broker has caught up with its own registration: any later heartbeat may unfence
        it, and clients may then learn of it.
        """
        await self._register(patience_s=self._settings.number("initial.broker.registration.timeout.ms") / 1000)
        pause_s, is_ready = _RETRY_S, False
        while self.is_fenced:
            if not is_ready and self._has_read_registration:
                on_ready()
                is_ready = True
            try:
                await self._beat()
            except ApiError as error:
                logger.info("heartbeat failed; retrying: %s", error)
            if self.is_fenced:
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 1.5, self._interval_s)
        self._beating = asyncio.ensure_future(self._keep_beating())

    async def stop(self) -> int:
        """Run a controlled shutdown, in which leadership moves to other brokers. Return the broker epoch."""
        if self._beating is not None:
            self._beating.cancel()
        if self.epoch < 0:
            return self.epoch
        try:
            async with asyncio.timeout(_SHUTDOWN_S):
                while not (await self._beat(want_shut_down=True, timeout_s=_NO_CONTROLLER_S)).should_shut_down:
                    await asyncio.sleep(_RETRY_S)
        except TimeoutError:
            logger.warning("controlled shutdown did not finish within %d s; shutting down anyway", _SHUTDOWN_S)
        except ApiError as error:
            logger.warning("controlled shutdown failed; shutting down anyway: %s", error)
        return self.epoch

    @property
    def _has_read_registration(self) -> bool:
        """Whether the applied metadata has this registration. The controller unfences a broker only after that."""
        registered = self._metadata.image.brokers.get(self._settings.node_id)
        return registered is not None and registered.epoch == self.epoch

    def send_heartbeat_soon(self) -> None:
        """Send the next heartbeat without waiting for its interval."""
        self._wake.set()

    def on_update(self, update: Update) -> None:
        """Send a heartbeat if a broker is in controlled shutdown: it waits until all heartbeats show that they know."""
        if any(broker.in_controlled_shutdown and not broker.fenced for broker in update.image.brokers.values()):
            self.send_heartbeat_soon()

    def on_settings(self, old: NodeSettings, new: NodeSettings) -> None:
        """Report changes of `cordoned.log.dirs` at once."""
        if old.cordoned_log_dirs != new.cordoned_log_dirs:
            self.send_heartbeat_soon()

    async def _register(self, *, patience_s: float | None = None) -> None:
        """Register the broker; retry until it succeeds, or for `patience_s`."""
        deadline = None if patience_s is None else monotonic() + patience_s
        pause_s, logged_error = _RETRY_S, ""
        while True:
            try:
                answer: BrokerRegistrationResponse = await self._ask(self._registration(), timeout_s=self._session_s)
                break
            except ApiError as error:
                if isinstance(error, _PERMANENT_ERRORS):
                    raise RegistrationFailed(
                        f"the controller refused to register this broker: {error} ({error.name}). Check that node.id,"
                        " the cluster id of the directories and the version of this node match the cluster"
                    ) from error
                if deadline is not None and monotonic() > deadline:
                    raise RegistrationFailed(
                        f"this broker could not register within {patience_s:g} s"
                        f" (initial.broker.registration.timeout.ms): {error} ({error.name}). Check that the controllers"
                        " are running and that this node can reach them"
                    ) from error
                if error.name != logged_error:
                    logger.warning("registration failed; retrying: %s", error)
                    logged_error = error.name
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_RETRY_S)
        self.epoch = answer.broker_epoch
        self._answered_at = monotonic()
        logger.info("broker %d is registered with epoch %d", self._settings.node_id, self.epoch)

    def _registration(self) -> BrokerRegistrationRequest:
        settings = self._settings
        directories = [directory for directory in self._logs.directories if directory.is_online]
        directory_ids = [directory.meta.directory_id for directory in directories]
        return BrokerRegistrationRequest(
            broker_id=settings.node_id,
            cluster_id=self._cluster_id,
            incarnation_id=self.incarnation,
            listeners=advertised_listeners(settings.advertised, self._ports, settings.protocols, Listener),
            features=advertised_features(settings.supported_features, Feature),
            rack=settings.rack,
            log_dirs=[directory_id for directory_id in directory_ids if directory_id is not None],
            previous_broker_epoch=min((directory.broker_epoch or -1 for directory in directories), default=-1),
        )

    def _cordoned(self) -> list[bytes] | None:
        """The directories that take no new replicas (KIP-1066); None until the broker has read its dynamic settings."""
        if not self._has_read_registration or self._metadata.image.features.metadata_version < CORDONED_LOG_DIRS:
            return None
        cordoned = (directory.meta.directory_id for directory in self._logs.directories if directory.is_cordoned)
        return [directory_id for directory_id in cordoned if directory_id is not None]

    async def _keep_beating(self) -> None:
        is_answered = True
        while True:
            await self._wait(_RETRY_S if self.is_fenced else self._interval_s)
            try:
                await self._beat()
                is_answered = True
            except (StaleBrokerEpoch, BrokerIdNotRegistered) as error:
                logger.warning("the controller no longer knows this broker; registering again: %s", error)
                await self._register_again()
            except ApiError as error:
                if is_answered:
                    logger.warning("heartbeats fail; the broker is fenced if this lasts: %s", error)
                is_answered = False

    async def _register_again(self) -> None:
        self.is_fenced = True
        try:
            await self._register()
        except RegistrationFailed as failed:
            logger.error("%s", failed)
            await asyncio.sleep(_LONGEST_RETRY_S)

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()

    async def _beat(self, *, want_shut_down: bool = False, timeout_s: float | None = None) -> BrokerHeartbeatResponse:
        offline = [directory.meta.directory_id for directory in self._logs.directories if not directory.is_online]
        answer: BrokerHeartbeatResponse = await self._ask(
            BrokerHeartbeatRequest(
                broker_id=self._settings.node_id,
                broker_epoch=self.epoch,
                current_metadata_offset=self._metadata.applied_offset - 1,
                want_shut_down=want_shut_down,
                offline_log_dirs=[directory_id for directory_id in offline if directory_id is not None],
                cordoned_log_dirs=self._cordoned(),
            ),
            timeout_s=self._session_s if timeout_s is None else timeout_s,
        )
        self._answered_at = monotonic()
        self.is_fenced = answer.is_fenced
        return answer
