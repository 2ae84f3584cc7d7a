"""A broker's life in the cluster: registered, caught up, unfenced; at its end shut down with the controller's leave.

Heartbeats go on whoever is the active controller. One is sent at once when a new controller is known, when the
connection to it broke, and when another broker waits for all to know that it leaves; else each goes out in its time.
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
from ottla.node.advertised import features_told, listeners_told
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
_FINAL: Final = (UnsupportedVersion, InconsistentClusterId, InvalidRegistration)
"""Refusals that no waiting changes: the node is not one of this cluster, or cannot be."""


class RegistrationFailed(Exception):
    """The cluster does not take this broker in; the message says why."""


class Ask(Protocol):
    """The way to the active controller."""

    async def __call__(self, request: Any, *, timeout_s: float | None = None) -> Any: ...


class Lifecycle:
    """Registers the broker and keeps it in service."""

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
        """This life of the broker, which the controller knows it by before it has an epoch."""
        self.epoch = -1
        self.is_fenced = True

    @property
    def silence_s(self) -> float:
        """How long no heartbeat has been answered, if that is longer than the cluster waits for a broker; else 0."""
        silence_s = monotonic() - self._answered_at
        return silence_s if silence_s > self._session_s else 0.0

    async def start(self, on_ready: Callable[[], None]) -> None:
        """Return when the broker is in service; raises RegistrationFailed.

        `on_ready` is called when nothing is missing but the controller's leave: from then on others may be told of it.
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
                logger.info("a heartbeat was not answered: %s", error)
            if self.is_fenced:
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 1.5, self._interval_s)
        self._beating = asyncio.ensure_future(self._keep_beating())

    async def stop(self) -> int:
        """Leave the cluster with the controller's leave, so that others take over first; returns the broker's epoch."""
        if self._beating is not None:
            self._beating.cancel()
        if self.epoch < 0:
            return self.epoch
        try:
            async with asyncio.timeout(_SHUTDOWN_S):
                while not (await self._beat(want_shut_down=True, timeout_s=_NO_CONTROLLER_S)).should_shut_down:
                    await asyncio.sleep(_RETRY_S)
        except TimeoutError:
            logger.warning("the controller did not let this broker go within %d s", _SHUTDOWN_S)
        except ApiError as error:
            logger.warning("this broker leaves without the controller's leave: %s", error)
        return self.epoch

    @property
    def _has_read_registration(self) -> bool:
        """Whether the metadata that were read are of this life of the broker: the controller unfences nobody before."""
        registered = self._metadata.image.brokers.get(self._settings.node_id)
        return registered is not None and registered.epoch == self.epoch

    def beat_now(self) -> None:
        """Send the next heartbeat without delay."""
        self._wake.set()

    def on_update(self, update: Update) -> None:
        """A broker that shuts down waits until all others have read of it, which they tell by their heartbeats."""
        if any(broker.in_controlled_shutdown and not broker.fenced for broker in update.image.brokers.values()):
            self.beat_now()

    def on_settings(self, old: NodeSettings, new: NodeSettings) -> None:
        """The controller is to know at once where no more replicas go."""
        if old.cordoned_log_dirs != new.cordoned_log_dirs:
            self.beat_now()

    async def _register(self, *, patience_s: float | None = None) -> None:
        """Register, however long it takes, or for as long as there is patience for it."""
        deadline = None if patience_s is None else monotonic() + patience_s
        pause_s, told = _RETRY_S, ""
        while True:
            try:
                answer: BrokerRegistrationResponse = await self._ask(self._registration(), timeout_s=self._session_s)
                break
            except ApiError as error:
                if isinstance(error, _FINAL):
                    raise RegistrationFailed(f"the cluster refuses this broker: {error} ({error.name})") from error
                if deadline is not None and monotonic() > deadline:
                    raise RegistrationFailed(
                        f"this broker could not be registered within {patience_s:g} s: {error} ({error.name})"
                    ) from error
                if error.name != told:
                    logger.warning("this broker could not be registered, and goes on trying: %s", error)
                    told = error.name
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_RETRY_S)
        self.epoch = answer.broker_epoch
        self._answered_at = monotonic()
        logger.info("this broker is registered with epoch %d", self.epoch)

    def _registration(self) -> BrokerRegistrationRequest:
        settings = self._settings
        directories = [each for each in self._logs.directories if each.is_online]
        return BrokerRegistrationRequest(
            broker_id=settings.node_id,
            cluster_id=self._cluster_id,
            incarnation_id=self.incarnation,
            listeners=listeners_told(settings.advertised, self._ports, settings.protocols, Listener),
            features=features_told(settings.supported_features, Feature),
            rack=settings.rack,
            log_dirs=[each.meta.directory_id for each in directories if each.meta.directory_id is not None],
            previous_broker_epoch=min((each.broker_epoch or -1 for each in directories), default=-1),
        )

    def _cordoned(self) -> list[bytes] | None:
        """The directories that take no new replicas (KIP-1066), once this life of the broker has read its settings."""
        if not self._has_read_registration or self._metadata.image.features.metadata_version < CORDONED_LOG_DIRS:
            return None
        cordoned = (each.meta.directory_id for each in self._logs.directories if each.is_cordoned)
        return [each for each in cordoned if each is not None]

    async def _keep_beating(self) -> None:
        is_answered = True
        while True:
            await self._rest(_RETRY_S if self.is_fenced else self._interval_s)
            try:
                await self._beat()
                is_answered = True
            except (StaleBrokerEpoch, BrokerIdNotRegistered) as error:
                logger.warning("the controller does not know this broker any more: %s", error)
                await self._register_again()
            except ApiError as error:
                if is_answered:
                    logger.warning("heartbeats are not answered: %s", error)
                is_answered = False

    async def _register_again(self) -> None:
        self.is_fenced = True
        try:
            await self._register()
        except RegistrationFailed as failed:
            logger.error("%s", failed)
            await asyncio.sleep(_LONGEST_RETRY_S)

    async def _rest(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()

    async def _beat(self, *, want_shut_down: bool = False, timeout_s: float | None = None) -> BrokerHeartbeatResponse:
        offline = [each.meta.directory_id for each in self._logs.directories if not each.is_online]
        answer: BrokerHeartbeatResponse = await self._ask(
            BrokerHeartbeatRequest(
                broker_id=self._settings.node_id,
                broker_epoch=self.epoch,
                current_metadata_offset=self._metadata.applied_offset - 1,
                want_shut_down=want_shut_down,
                offline_log_dirs=[each for each in offline if each is not None],
                cordoned_log_dirs=self._cordoned(),
            ),
            timeout_s=self._session_s if timeout_s is None else timeout_s,
        )
        self._answered_at = monotonic()
        self.is_fenced = answer.is_fenced
        return answer
