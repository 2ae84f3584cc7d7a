"""The plug-ins that a node's settings name: authorizer, controller policies, consumer group assignors.

A node without plug-ins does not even import the modules that run them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from ottla.config.node_settings import NodeSettings
from ottla.coordinators.groups.consumer.assignor import Assignor
from ottla.coordinators.groups.consumer.settings import ASSIGNORS, built_in_assignor
from ottla.node.directories import NodeFailed
from ottla.replication.runtime import Spawn

if TYPE_CHECKING:
    from ottla.node.policies import Policies
    from ottla.plugins import ServerInfo
    from ottla.plugins.authorizers import PluginAuthorizer
    from ottla.plugins.loading import LoadedPlugins

Readiness = Mapping[str, "Callable[[], Awaitable[object]]"]
"""Functions that wait until the authorizer can decide on the requests of a listener, by listener."""
POLICIES: Final = {
    "create.topic.policy.class.name": "create-topic",
    "alter.config.policy.class.name": "alter-config",
}
AUTHORIZER: Final = "authorizer.class.name"
STANDARD: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""Kafka's authorizer, which is built in."""


class Plugins:
    """A node's plug-ins, from its start to its stop."""

    def __init__(self, settings: NodeSettings) -> None:
        self._settings = settings
        self._loaded: LoadedPlugins | None = None
        self.policies: Policies | None = None
        """None without policies."""
        self.assignors: Mapping[str, Assignor] = {}
        """By their entry in `group.consumer.assignors`."""
        self.authorizer: PluginAuthorizer | None = None
        self._readiness: Readiness = {}

    async def start(self) -> None:
        """Load all plug-ins. Raise NodeFailed."""
        if not any(_required_plugins(self._settings)):
            return
        from ottla.node.policies import Policies
        from ottla.plugins.loading import InvalidPlugin, Kind, LoadedPlugins, PluginSpec

        specs = [PluginSpec(Kind(kind), setting, name) for kind, setting, name in _required_plugins(self._settings)]
        self._loaded = LoadedPlugins()
        try:
            await self._loaded.load(specs, self._settings.given)
        except InvalidPlugin as wrong:
            raise NodeFailed(str(wrong)) from wrong
        self.authorizer = self._loaded.authorizer
        self.assignors = self._loaded.assignors
        self._check_names()
        if self._loaded.policies:
            self.policies = Policies(
                self._loaded.policies.get(Kind.CREATE_TOPIC), self._loaded.policies.get(Kind.ALTER_CONFIG)
            )

    async def start_authorizer(self, cluster_id: str, ports: Mapping[str, int], spawn: Spawn) -> None:
        """Start the authorizer with the bound listeners. Raise NodeFailed."""
        if self.authorizer is None:
            return
        server = _server_info(self._settings, cluster_id, ports)
        try:
            self._readiness = await self.authorizer.start(server, spawn)
        except Exception as error:
            raise NodeFailed(f"{AUTHORIZER}={self.authorizer.name}: it failed to start: {error}") from error

    async def authorizer_ready(self, *listeners: str) -> None:
        """Wait until the authorizer can decide on requests of these listeners. Raise NodeFailed."""
        for listener in listeners:
            wait = self._readiness.get(listener)
            if self.authorizer is None or wait is None:
                continue
            try:
                await wait()
            except Exception as error:
                raise NodeFailed(
                    f"{AUTHORIZER}={self.authorizer.name}: it cannot decide on requests of listener {listener}: {error}"
                ) from error

    async def stop(self) -> None:
        """Close all plug-ins."""
        if self._loaded is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._loaded.close)

    def _check_names(self) -> None:
        names = (
            self.assignors[entry].name if entry in self.assignors else built_in_assignor(entry)
            for entry in _assignors(self._settings)
        )
        duplicates = [name for name, times in Counter(names).items() if times > 1]
        if duplicates:
            raise NodeFailed(
                f"{ASSIGNORS}: more than one assignor is named {duplicates[0]}, but members choose them by name:"
                " remove all but one"
            )


def _server_info(settings: NodeSettings, cluster_id: str, ports: Mapping[str, int]) -> ServerInfo:
    from ottla.plugins import Endpoint, ServerInfo

    endpoints = tuple(
        Endpoint(listener.name, listener.protocol.name, listener.host, ports.get(listener.name, listener.port))
        for listener in settings.listeners
    )
    name = settings.inter_broker_listener_name if settings.is_broker else ""
    between = next((endpoint for endpoint in endpoints if endpoint.listener == name), endpoints[0])
    early = settings["early.start.listeners"] or ()
    assert isinstance(early, tuple)
    return ServerInfo(
        cluster_id=cluster_id,
        node_id=settings.node_id,
        endpoints=endpoints,
        inter_broker_endpoint=between,
        early_start_listeners=frozenset({*early, *settings.controller_listener_names}),
    )


def _required_plugins(settings: NodeSettings) -> Iterator[tuple[str, str, str]]:
    """Yield the kind, setting and name of each plug-in that this node's roles need."""
    if (name := settings.text(AUTHORIZER)) and name != STANDARD:
        yield "authorizer", AUTHORIZER, name
    if settings.is_controller:
        for setting, kind in POLICIES.items():
            if name := settings.text(setting):
                yield kind, setting, name
    if settings.is_broker:
        for name in _assignors(settings):
            if built_in_assignor(name) is None:
                yield "assignor", ASSIGNORS, name


def _assignors(settings: NodeSettings) -> tuple[str, ...]:
    names = settings[ASSIGNORS]
    assert isinstance(names, tuple)
    return names
