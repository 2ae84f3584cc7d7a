"""A broker's life in the cluster: registered, caught up, unfenced; at its end shut down with the controller's leave."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ottla.errors import ApiError, by_code
from ottla.log.logs import Logs
from ottla.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from ottla.server.advertised import features_told, listeners_told
from ottla.server.formatting import random_id
from ottla.server.metadata import Metadata
from ottla.server.node_settings import NodeSettings

logger = logging.getLogger(__name__)

_RETRY_S = 0.05
_SHUTDOWN_S = 30.0


class Lifecycle:
    """Registers the broker and keeps it in service."""

    def __init__(
        self,
        settings: NodeSettings,
        cluster_id: str,
        logs: Logs,
        metadata: Metadata,
        ports: Mapping[str, int],
        ask: Callable[[Any], Awaitable[Any]],
    ) -> None:
        self._settings = settings
        self._cluster_id = cluster_id
        self._logs = logs
        self._metadata = metadata
        self._ports = ports
        self._ask = ask
        self._beating: asyncio.Task[None] | None = None
        self._incarnation = random_id()
        self.epoch = -1
        self.is_fenced = True

    async def start(self) -> None:
        """Return when the broker is in service."""
        while not await self._register():
            await asyncio.sleep(_RETRY_S)
        while self.is_fenced:
            await self._beat()
            if self.is_fenced:
                await asyncio.sleep(_RETRY_S)
        self._beating = asyncio.ensure_future(self._keep_beating())

    async def stop(self) -> int:
        """Leave the cluster with the controller's leave, so that others take over first; returns the broker's epoch."""
        if self._beating is not None:
            self._beating.cancel()
        try:
            async with asyncio.timeout(_SHUTDOWN_S):
                while not (await self._beat(want_shut_down=True)).should_shut_down:
                    await asyncio.sleep(_RETRY_S)
        except TimeoutError:
            logger.warning("the controller did not let this broker go within %d s", _SHUTDOWN_S)
        except ApiError as error:
            logger.warning("this broker leaves without the controller's leave: %s", error)
        return self.epoch

    async def _register(self) -> bool:
        settings = self._settings
        directories = [each for each in self._logs.directories if each.is_online]
        request = BrokerRegistrationRequest(
            broker_id=settings.node_id,
            cluster_id=self._cluster_id,
            incarnation_id=self._incarnation,
            listeners=listeners_told(settings.advertised, self._ports, settings.protocols, Listener),
            features=features_told(Feature),
            rack=settings.rack,
            log_dirs=[each.meta.directory_id for each in directories if each.meta.directory_id is not None],
            previous_broker_epoch=min((each.broker_epoch or -1 for each in directories), default=-1),
        )
        try:
            answer: BrokerRegistrationResponse = await self._ask(request)
        except ApiError as error:
            logger.warning("this broker could not be registered: %s", error)
            return False
        if answer.error_code:
            logger.warning("this broker could not be registered: %s", by_code(answer.error_code).name)
            return False
        self.epoch = answer.broker_epoch
        return True

    async def _keep_beating(self) -> None:
        interval_s = self._settings.number("broker.heartbeat.interval.ms") / 1000
        while True:
            await asyncio.sleep(interval_s)
            try:
                await self._beat()
            except ApiError as error:
                logger.warning("a heartbeat was not answered: %s", error)

    async def _beat(self, *, want_shut_down: bool = False) -> BrokerHeartbeatResponse:
        offline = [each.meta.directory_id for each in self._logs.directories if not each.is_online]
        answer: BrokerHeartbeatResponse = await self._ask(
            BrokerHeartbeatRequest(
                broker_id=self._settings.node_id,
                broker_epoch=self.epoch,
                current_metadata_offset=self._metadata.applied_offset - 1,
                want_shut_down=want_shut_down,
                offline_log_dirs=[each for each in offline if each is not None],
            )
        )
        if answer.error_code:
            raise by_code(answer.error_code)("a heartbeat was refused")
        self.is_fenced = answer.is_fenced
        return answer
