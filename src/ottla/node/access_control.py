"""The authorizer and client quotas of a node, kept up to date with the cluster's metadata."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from ottla.broker.authorization.actions import Authorizer
from ottla.broker.authorization.standard import StandardAuthorizer, super_users
from ottla.broker.network.listener import ConnectionCounts
from ottla.broker.quotas.client_quotas import ClientQuotas, QuotaWindows
from ottla.broker.requests.dispatch import Dispatch
from ottla.broker.requests.throttling import BrokerThrottling, ControllerThrottling, Throttling
from ottla.config.listeners import SettingConflict
from ottla.config.node_settings import NodeSettings
from ottla.metadata.controller.quotas import IP
from ottla.metadata.image.loader import Update
from ottla.metadata.image.values import QuotaEntity, quota_entity
from ottla.node.plugins import AUTHORIZER, STANDARD
from ottla.node.quota_hosts import address_of, canonical_address, host_of
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
    """Applies ACLs and quotas from the metadata."""

    def __init__(self, settings: NodeSettings, connections: ConnectionCounts, runtime: Runtime) -> None:
        self._standard = standard_authorizer(settings)
        self.authorizer: Authorizer | None = self._standard
        """Kafka's authorizer, or a plug-in once it is loaded; None allows everything."""
        self._throttled: list[tuple[Dispatch[Any], Throttling]] = []
        """The dispatchers on which quotas are enforced, with what enforces them."""
        self._connections = connections
        self._spawn = runtime.spawn
        self._now_ms = now_ms = runtime.now_ms
        self._quotas = ClientQuotas(
            _windows(settings, "quota"),
            _windows(settings, "controller.quota"),
            QuotaWindows(settings.number("metrics.num.samples"), settings.number("metrics.sample.window.ms")),
        )
        self._named_host_quotas: dict[str, Mapping[str, float]] = {}
        self._addresses: dict[str, str] = {}
        """Host name → the address on which its quota is enforced."""
        # Broker and controller share the quotas, as in Kafka, where both roles of a node share the sensors.
        self._broker_throttling = BrokerThrottling(self._quotas, now_ms)
        self._controller_throttling = ControllerThrottling(self._quotas, now_ms)

    @property
    def throttling(self) -> Throttling:
        """Charges the quotas of clients for changes that the controller makes for them."""
        return self._controller_throttling

    def enforce_on(self, broker: Dispatch[Any], controller: Dispatch[Any]) -> None:
        """Enforce quotas on the requests of both kinds of listeners."""
        self._throttled += [(broker, self._broker_throttling), (controller, self._controller_throttling)]
        self._update_enforcement()

    def exempt_time(self) -> float:
        """Return the time spent on requests exempt from request quotas, as a percentage of a thread's time."""
        return self._quotas.exempt.measure(self._now_ms())[0]

    def on_update(self, update: Update) -> None:
        """Apply changed ACLs and quotas."""
        if self._standard is not None:
            for change in update.changes.acls:
                if change.old is not None:
                    self._standard.remove(change.key, change.old)
                if change.new is not None:
                    self._standard.add(change.key, change.new)
        if update.changes.quotas:
            for quota in update.changes.quotas:
                self._set_quota(quota.key, quota.new)
            self._update_enforcement()

    def _set_quota(self, entity: QuotaEntity, given: Mapping[str, float] | None) -> None:
        host = host_of(entity)
        if host is None:
            self._quotas.set(entity, given)
            return
        address = canonical_address(host)
        if address is not None:
            self._quotas.set(quota_entity({IP: address}), given)
        elif given is not None:
            self._named_host_quotas[host] = given
            self._spawn(self._set_named_host_quota(host))
        else:
            self._named_host_quotas.pop(host, None)
            address = self._addresses.pop(host, None)
            if address is not None:
                self._quotas.set(quota_entity({IP: address}), None)

    async def _set_named_host_quota(self, host: str) -> None:
        """Set the quota of a host name for its address. Later changes use the address of the first lookup."""
        address = self._addresses.get(host) or await address_of(host)
        given = self._named_host_quotas.get(host)
        if given is None:
            return  # removed during the lookup
        if address is None:
            logger.warning("the quota of host %s is not enforced: the name does not resolve to an address", host)
            return
        self._addresses[host] = address
        self._quotas.set(quota_entity({IP: address}), given)
        self._update_enforcement()

    def _update_enforcement(self) -> None:
        """Meter clients only while at least one quota is set, so that clusters without quotas pay nothing."""
        for dispatch, throttling in self._throttled:
            dispatch.throttling = throttling if self._quotas.is_active else None
        self._connections.throttle_ms = self._connect if self._quotas.connections.is_active else None

    def _connect(self, address: str) -> int:
        return self._quotas.record_connection(address, self._now_ms())


def _windows(settings: NodeSettings, prefix: str) -> QuotaWindows:
    return QuotaWindows(
        settings.number(f"{prefix}.window.num"), settings.number(f"{prefix}.window.size.seconds") * 1000
    )
