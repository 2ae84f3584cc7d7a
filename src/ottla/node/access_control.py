"""The authorizer and the quotas of a node, as its settings say, kept up with the cluster's metadata."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from ottla.broker.authorization.actions import Authorizer
from ottla.broker.authorization.standard import StandardAuthorizer, super_users
from ottla.broker.network.listener import Connections
from ottla.broker.quotas.client_quotas import ClientQuotas, Windows
from ottla.broker.requests.dispatch import Dispatch
from ottla.broker.requests.throttling import BrokerThrottling, ControllerThrottling, Throttling
from ottla.config.listeners import SettingConflict
from ottla.config.node_settings import NodeSettings
from ottla.metadata.controller.quotas import IP
from ottla.metadata.image.loader import Update
from ottla.metadata.image.values import QuotaEntity, quota_entity
from ottla.node.plugins import AUTHORIZER, STANDARD
from ottla.node.quota_hosts import address_of, host_of, spelled_out
from ottla.replication.runtime import Runtime

logger = logging.getLogger(__name__)

SUPER_USERS: Final = "super.users"
ALLOW_EVERYONE: Final = "allow.everyone.if.no.acl.found"


def standard_authorizer(settings: NodeSettings) -> StandardAuthorizer | None:
    """Return Kafka's authorizer, without rules yet, if the settings name it; None for a plug-in or no authorizer."""
    if settings.text(AUTHORIZER) != STANDARD:
        return None
    try:
        users = super_users(settings.given.get(SUPER_USERS, ""))
    except ValueError as error:
        raise SettingConflict(SUPER_USERS, str(error)) from None
    return StandardAuthorizer(
        super_users=users,
        allow_without_rules=settings.given.get(ALLOW_EVERYONE, "false").strip().lower() == "true",
    )


class AccessControl:
    """Puts rules and quotas into force as the metadata bring them."""

    def __init__(
        self,
        settings: NodeSettings,
        connections: Connections,
        runtime: Runtime,
    ) -> None:
        self._standard = standard_authorizer(settings)
        self.authorizer: Authorizer | None = self._standard
        """A plug-in is put here when it has been loaded."""
        self._throttled: list[tuple[Dispatch[Any], Throttling]] = []
        """Where clients are held to their quotas, and by what."""
        self._connections = connections
        self._spawn = runtime.spawn
        self._now_ms = now_ms = runtime.now_ms
        self._quotas = ClientQuotas(
            _windows(settings, "quota"),
            _windows(settings, "controller.quota"),
            Windows(settings.number("metrics.num.samples"), settings.number("metrics.sample.window.ms")),
        )
        self._of_names: dict[str, Mapping[str, float]] = {}
        """The quotas of hosts that are given by name."""
        self._addresses: dict[str, str] = {}
        """By which addresses these hosts are held to them."""
        # A node that is broker and controller counts its clients once, as Kafka's does: both have the same sensors.
        self._of_broker = BrokerThrottling(self._quotas, now_ms)
        self._of_controller = ControllerThrottling(self._quotas, now_ms)

    @property
    def throttling(self) -> Throttling:
        """What counts the changes that clients have the controller make."""
        return self._of_controller

    def throttle(self, of_broker: Dispatch[Any], of_controller: Dispatch[Any]) -> None:
        """Hold the clients of both kinds of listeners to their quotas, from now on."""
        self._throttled += [(of_broker, self._of_broker), (of_controller, self._of_controller)]
        self.hold_to_quotas()

    def exempt_time(self) -> float:
        """The time of requests that are exempt from request quotas, as a percentage of a thread's time."""
        return self._quotas.exempt.measure(self._now_ms())[0]

    def on_update(self, update: Update) -> None:
        """The cluster's metadata have changed."""
        if self._standard is not None:
            for change in update.changes.acls:
                if change.old is not None:
                    self._standard.remove(change.key, change.old)
                if change.new is not None:
                    self._standard.add(change.key, change.new)
        if update.changes.quotas:
            for each in update.changes.quotas:
                self._set(each.key, each.new)
            self.hold_to_quotas()

    def _set(self, entity: QuotaEntity, given: Mapping[str, float] | None) -> None:
        host = host_of(entity)
        if host is None:
            self._quotas.set(entity, given)
            return
        address = spelled_out(host)
        if address is not None:
            self._quotas.set(quota_entity({IP: address}), given)
        elif given is not None:
            self._of_names[host] = given
            self._spawn(self._limit_named(host))
        else:
            self._of_names.pop(host, None)
            address = self._addresses.pop(host, None)
            if address is not None:
                self._quotas.set(quota_entity({IP: address}), None)

    async def _limit_named(self, host: str) -> None:
        """Hold a host to the quota that its name was given, by the address that it had when it was first given one."""
        address = self._addresses.get(host) or await address_of(host)
        given = self._of_names.get(host)
        if given is None:
            return  # it was removed meanwhile
        if address is None:
            logger.warning("the quota of host %s is not in force: the host has no address", host)
            return
        self._addresses[host] = address
        self._quotas.set(quota_entity({IP: address}), given)
        self.hold_to_quotas()

    def hold_to_quotas(self) -> None:
        """Count what clients use, as long as any of them has a quota: nobody else pays for it."""
        for dispatch, throttling in self._throttled:
            dispatch.throttling = throttling if self._quotas.is_active else None
        self._connections.throttle_ms = self._connect if self._quotas.connections.is_active else None

    def _connect(self, address: str) -> int:
        return self._quotas.connect(address, self._now_ms())


def _windows(settings: NodeSettings, prefix: str) -> Windows:
    return Windows(settings.number(f"{prefix}.window.num"), settings.number(f"{prefix}.window.size.seconds") * 1000)
