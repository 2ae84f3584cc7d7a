"""A controller tells the active one where it is and what it supports, so that clients and other nodes can know."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ottla.config.node_settings import NodeSettings
from ottla.metadata.image.loader import Update
from ottla.node.advertised import features_told, listeners_told
from ottla.protocol.errors import ApiError, by_code
from ottla.protocol.messages.rpc.controller_registration import ControllerRegistrationRequest, Feature, Listener
from ottla.protocol.metadata_versions import CONTROLLER_REGISTRATION
from ottla.replication.runtime import Spawn
from ottla.storage.directories.random_ids import random_id

logger = logging.getLogger(__name__)


class ControllerRegistration:
    """Registers this node's controller, whenever the metadata do not have it as it is in this life."""

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
        """Look whether the new image has this controller."""
        image = update.image
        if self._is_under_way or image.features.metadata_version < CONTROLLER_REGISTRATION:
            return
        known = image.controllers.get(self._settings.node_id)
        if known is None or known.incarnation_id != self._incarnation:
            self._is_under_way = True
            self._spawn(self._register())

    async def _register(self) -> None:
        settings = self._settings
        request = ControllerRegistrationRequest(
            controller_id=settings.node_id,
            incarnation_id=self._incarnation,
            listeners=listeners_told(settings.advertised_controllers, self._ports, settings.protocols, Listener),
            features=features_told(settings.supported_features, Feature),
        )
        try:
            answer = await self._ask(request)
            if answer.error_code:
                raise by_code(answer.error_code)(answer.error_message)
        except ApiError as error:
            logger.warning("this controller could not be registered: %s", error)
        finally:
            self._is_under_way = False
