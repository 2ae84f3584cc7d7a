"""The plug-ins that a node's settings name: policies of its controller, assignors of its group coordinators.

A node without any pays nothing for them, not even the import of what runs them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from ottla.groups.consumer.assignor import Assignor
from ottla.groups.consumer.settings import ASSIGNORS, built_in
from ottla.server.directories import NodeFailed
from ottla.server.node_settings import NodeSettings

if TYPE_CHECKING:
    from ottla.plugins.loading import Loaded
    from ottla.server.policies import Policies

POLICIES: Final = {
    "create.topic.policy.class.name": "create-topic",
    "alter.config.policy.class.name": "alter-config",
}


class Plugins:
    """A node's plug-ins, from its start to its stop."""

    def __init__(self, settings: NodeSettings) -> None:
        self._settings = settings
        self._loaded: Loaded | None = None
        self.policies: Policies | None = None
        """None where nobody is asked."""
        self.assignors: Mapping[str, Assignor] = {}
        """By what the setting has for them."""

    async def start(self) -> None:
        """Make all that are named; raises NodeFailed."""
        if not any(_named(self._settings)):
            return
        from ottla.plugins.loading import Kind, Loaded, Wanted, WrongPlugin
        from ottla.server.policies import Policies

        wanted = [Wanted(Kind(kind), setting, name) for kind, setting, name in _named(self._settings)]
        self._loaded = Loaded()
        try:
            await self._loaded.load(wanted, self._settings.given)
        except WrongPlugin as wrong:
            raise NodeFailed(str(wrong)) from wrong
        self.assignors = self._loaded.assignors
        self._check_names()
        if self._loaded.policies:
            self.policies = Policies(
                self._loaded.policies.get(Kind.CREATE_TOPIC), self._loaded.policies.get(Kind.ALTER_CONFIG)
            )

    async def stop(self) -> None:
        """Let them close."""
        if self._loaded is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._loaded.close)

    def _check_names(self) -> None:
        names = (
            self.assignors[each].name if each in self.assignors else built_in(each)
            for each in _assignors(self._settings)
        )
        again = [name for name, times in Counter(names).items() if times > 1]
        if again:
            raise NodeFailed(
                f"{ASSIGNORS}: more than one of them is named {again[0]}, and members ask for them by name"
            )


def _named(settings: NodeSettings) -> Iterator[tuple[str, str, str]]:
    """What kind of plug-in each setting names, of those that this node needs."""
    if settings.is_controller:
        for setting, kind in POLICIES.items():
            if name := settings.text(setting):
                yield kind, setting, name
    if settings.is_broker:
        for name in _assignors(settings):
            if built_in(name) is None:
                yield "assignor", ASSIGNORS, name


def _assignors(settings: NodeSettings) -> tuple[str, ...]:
    names = settings[ASSIGNORS]
    assert isinstance(names, tuple)
    return names
