"""Loads the plug-ins that settings name: imports Python classes, and starts a JVM for Java classes.

If a plug-in cannot be loaded, `InvalidPlugin` says which setting names it, why, and what to do.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from ottla.coordinators.groups.consumer.assignor import Assignor
from ottla.plugins.assignors import JavaAssignor, PythonAssignor
from ottla.plugins.authorizers import JavaAuthorizer, PluginAuthorizer, PythonAuthorizer
from ottla.plugins.jvm import CannotStart, JavaClass, Jvm
from ottla.plugins.policies import JavaPolicy, PluginThread, Policy, PythonPolicy

logger = logging.getLogger(__name__)

_CLASS_PATH: Final = "the environment variable CLASSPATH must name the jars of the class, of what it needs, and of"


class Kind(StrEnum):
    """The extension point that a plug-in implements."""

    CREATE_TOPIC = "create-topic"
    ALTER_CONFIG = "alter-config"
    ASSIGNOR = "assignor"
    AUTHORIZER = "authorizer"


_METHODS: Final = {
    Kind.CREATE_TOPIC: "validate",
    Kind.ALTER_CONFIG: "validate",
    Kind.ASSIGNOR: "assign",
    Kind.AUTHORIZER: "authorize",
}
_JARS: Final = {
    Kind.CREATE_TOPIC: "kafka-clients",
    Kind.ALTER_CONFIG: "kafka-clients",
    Kind.ASSIGNOR: "kafka-clients and kafka-group-coordinator-api",
    Kind.AUTHORIZER: "kafka-clients",
}


class PluginSpec(NamedTuple):
    """A plug-in that a setting names."""

    kind: Kind
    setting: str
    name: str
    """`module:Class` for Python, or a Java class."""

    @property
    def is_python(self) -> bool:
        return ":" in self.name


class InvalidPlugin(Exception):
    """A plug-in cannot be loaded; the message says which, why, and what to do."""

    def __init__(self, spec: PluginSpec, reason: str) -> None:
        super().__init__(f"{spec.setting}={spec.name}: {reason}")


class LoadedPlugins:
    """The loaded plug-ins of a node."""

    def __init__(self) -> None:
        self.policies: dict[Kind, Policy] = {}
        self.assignors: dict[str, Assignor] = {}
        """The consumer group assignors, by their entry in `group.consumer.assignors`."""
        self.authorizer: PluginAuthorizer | None = None
        self._closing: list[Callable[[], object]] = []
        self._threads: dict[str, PluginThread] = {}
        self._jvm: Jvm | None = None

    async def load(self, specs: Sequence[PluginSpec], settings: Mapping[str, str]) -> None:
        """Create all plug-ins and configure them with the node's configuration file. Raise InvalidPlugin."""
        java = [spec for spec in specs if not spec.is_python]
        for spec in specs:
            if spec.is_python:
                self._add_python(spec, settings)
        if java:
            names = await asyncio.get_running_loop().run_in_executor(None, self._start_jvm, java, settings)
            for index, (spec, name) in enumerate(zip(java, names, strict=True)):
                self._add_java(spec, index, name)

    def close(self) -> None:
        """Close the plug-ins. Python plug-ins may take any time; Java plug-ins have a timeout."""
        for thread in self._threads.values():
            thread.stop()
        for close in self._closing:
            try:
                close()
            except Exception as error:  # the node must stop in any case
                logger.error("closing a plug-in failed", exc_info=error)
        if self._jvm is not None:
            self._jvm.stop()

    def _add_python(self, spec: PluginSpec, settings: Mapping[str, str]) -> None:
        plugin = _create(spec, settings)
        close = getattr(plugin, "close", None)
        if close is not None:
            self._closing.append(close)
        if spec.kind is Kind.ASSIGNOR:
            name = getattr(plugin, "name", None)
            if not isinstance(name, str):
                raise InvalidPlugin(spec, "an assignor needs an attribute `name` that is a string")
            self.assignors[spec.name] = PythonAssignor(name, plugin)
            return
        if spec.kind is Kind.AUTHORIZER:
            python = PythonAuthorizer(plugin, self._thread("ottla-authorizer"))
            self.authorizer = PluginAuthorizer(spec.name, python)
            return
        self.policies[spec.kind] = PythonPolicy(spec.name, plugin, self._thread("ottla-policies"))

    def _thread(self, name: str) -> PluginThread:
        if name not in self._threads:
            self._threads[name] = PluginThread(name)
        return self._threads[name]

    def _start_jvm(self, specs: Sequence[PluginSpec], settings: Mapping[str, str]) -> list[str]:
        self._jvm = Jvm([JavaClass(spec.kind, spec.name) for spec in specs], settings)
        try:
            return self._jvm.start()
        except CannotStart as error:
            if error.index is None:
                raise InvalidPlugin(specs[0], f"Java plug-ins cannot run: {error}") from None
            wrong = specs[error.index]
            raise InvalidPlugin(wrong, f"{error}: {_CLASS_PATH} {_JARS[wrong.kind]}") from None

    def _add_java(self, spec: PluginSpec, index: int, name: str) -> None:
        assert self._jvm is not None
        if spec.kind is Kind.ASSIGNOR:
            self.assignors[spec.name] = JavaAssignor(name, self._jvm, index)
        elif spec.kind is Kind.AUTHORIZER:
            self.authorizer = PluginAuthorizer(spec.name, JavaAuthorizer(self._jvm, index))
        else:
            self.policies[spec.kind] = JavaPolicy(spec.name, self._jvm, index)


def _create(spec: PluginSpec, settings: Mapping[str, str]) -> Any:
    module, _, name = spec.name.partition(":")
    try:
        plugin_class = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise InvalidPlugin(spec, f"{error}; add its folder to PYTHONPATH") from error
    except (AttributeError, ValueError) as error:
        raise InvalidPlugin(spec, f"{error}; the name must be module:Class") from error
    except Exception as error:
        raise InvalidPlugin(spec, f"importing the module failed: {error!r}") from error
    if not inspect.isclass(plugin_class) or not callable(getattr(plugin_class, _METHODS[spec.kind], None)):
        raise InvalidPlugin(spec, f"it is not a class with a method {_METHODS[spec.kind]}")
    try:
        plugin = plugin_class()
        if hasattr(plugin, "configure"):
            plugin.configure(settings)
    except Exception as error:
        raise InvalidPlugin(spec, f"creating it failed: {error!r}") from error
    return plugin
