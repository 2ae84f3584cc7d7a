"""Registers this node's controller with the active controller: its listeners and the features it supports."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ottla.config.node_settings import NodeSettings
from ottla.metadata.image.loader import Update
from ottla.node.advertised import advertised_features, advertised_listeners
from ottla.protocol.errors import ApiError, by_code
from ottla.protocol.messages.rpc.controller_registration import ControllerRegistrationRequest, Feature, Listener
from ottla.protocol.metadata_versions import CONTROLLER_REGISTRATION
from ottla.replication.runtime import Spawn
from ottla.storage.directories.random_ids import random_id

logger = logging.getLogger(__name__)


class ControllerRegistration:
    """Registers this node's controller whenever the metadata lacks the registration of this process."""

    def __init__(
        self,
        settings: NodeSettings,
        ports: Mapping[str, int],
        ask: Callable[[Any], Awaitable[Any]],
        spawn: Spawn,
    ) -> None:
        self._settings = settings
        self._ports = ports
        self._ask = ask
        self._spawn = spawn
        self._incarnation = random_id()
        self._is_under_way = False

    def on_update(self, update: Update) -> None:
        """Register if the new image lacks this controller's registration."""
        image = update.image
        if self._is_under_way or image.features.metadata_version < CONTROLLER_REGISTRATION:
            return
        registered = image.controllers.get(self._settings.node_id)
        if registered is None or registered.incarnation_id != self._incarnation:
            self._is_under_way = True
            self._spawn(self._register())

    async def _register(self) -> None:
        settings = self._settings
        request = ControllerRegistrationRequest(
            controller_id=settings.node_id,
            incarnation_id=self._incarnation,
            listeners=advertised_listeners(settings.advertised_controllers, self._ports, settings.protocols, Listener),
            features=advertised_features(settings.supported_features, Feature),
        )
        try:
            answer = await self._ask(request)
            if answer.error_code:
                raise by_code(answer.error_code)(answer.error_message)
        except ApiError as error:
            logger.warning(
                "controller %d could not register; it retries with the next metadata: %s", settings.node_id, error
            )
        finally:
            self._is_under_way = False
