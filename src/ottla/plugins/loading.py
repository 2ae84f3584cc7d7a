"""Plug-ins are found by the names that settings give them: classes of Python are imported, those of Java get their JVM.

A plug-in that cannot be had leaves as one `WrongPlugin`: which setting names it, and what would be right.
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
    """What a plug-in is for."""

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


class Wanted(NamedTuple):
    """A plug-in that a setting names."""

    kind: Kind
    setting: str
    name: str
    """`module:Class`, or a class of Java."""

    @property
    def is_python(self) -> bool:
        return ":" in self.name


class WrongPlugin(Exception):
    """A plug-in cannot be had; the message says which, why, and what to do."""

    def __init__(self, wanted: Wanted, reason: str) -> None:
        super().__init__(f"{wanted.setting}={wanted.name}: {reason}")


class Loaded:
    """The plug-ins of a node, ready to be asked."""

    def __init__(self) -> None:
        self.policies: dict[Kind, Policy] = {}
        self.assignors: dict[str, Assignor] = {}
        """By what the setting has for them."""
        self.authorizer: PluginAuthorizer | None = None
        self._closing: list[Callable[[], object]] = []
        self._threads: dict[str, PluginThread] = {}
        self._jvm: Jvm | None = None

    async def load(self, wanted: Sequence[Wanted], settings: Mapping[str, str]) -> None:
        """Make all of them, with the node's configuration file; raises WrongPlugin."""
        of_java = [each for each in wanted if not each.is_python]
        for each in wanted:
            if each.is_python:
                self._add_python(each, settings)
        if of_java:
            names = await asyncio.get_running_loop().run_in_executor(None, self._start_jvm, of_java, settings)
            for index, (each, name) in enumerate(zip(of_java, names, strict=True)):
                self._add_java(each, index, name)

    def close(self) -> None:
        """Let the plug-ins close. Takes as long as they take, within limits where they are of Java."""
        for thread in self._threads.values():
            thread.stop()
        for close in self._closing:
            try:
                close()
            except Exception as error:  # in whatever way it fails, the node stops
                logger.error("a plug-in could not close", exc_info=error)
        if self._jvm is not None:
            self._jvm.stop()

    def _add_python(self, wanted: Wanted, settings: Mapping[str, str]) -> None:
        plugin = _make(wanted, settings)
        close = getattr(plugin, "close", None)
        if close is not None:
            self._closing.append(close)
        if wanted.kind is Kind.ASSIGNOR:
            name = getattr(plugin, "name", None)
            if not isinstance(name, str):
                raise WrongPlugin(wanted, "an assignor has a name, and the class has none that is a text")
            self.assignors[wanted.name] = PythonAssignor(name, plugin)
            return
        if wanted.kind is Kind.AUTHORIZER:
            python = PythonAuthorizer(plugin, self._thread("ottla-authorizer"))
            self.authorizer = PluginAuthorizer(wanted.name, python)
            return
        self.policies[wanted.kind] = PythonPolicy(wanted.name, plugin, self._thread("ottla-policies"))

    def _thread(self, name: str) -> PluginThread:
        if name not in self._threads:
            self._threads[name] = PluginThread(name)
        return self._threads[name]

    def _start_jvm(self, wanted: Sequence[Wanted], settings: Mapping[str, str]) -> list[str]:
        self._jvm = Jvm([JavaClass(each.kind, each.name) for each in wanted], settings)
        try:
            return self._jvm.start()
        except CannotStart as error:
            if error.index is None:
                raise WrongPlugin(wanted[0], f"a class of Java cannot be run: {error}") from None
            wrong = wanted[error.index]
            raise WrongPlugin(wrong, f"{error}: {_CLASS_PATH} {_JARS[wrong.kind]}") from None

    def _add_java(self, wanted: Wanted, index: int, name: str) -> None:
        assert self._jvm is not None
        if wanted.kind is Kind.ASSIGNOR:
            self.assignors[wanted.name] = JavaAssignor(name, self._jvm, index)
        elif wanted.kind is Kind.AUTHORIZER:
            self.authorizer = PluginAuthorizer(wanted.name, JavaAuthorizer(self._jvm, index))
        else:
            self.policies[wanted.kind] = JavaPolicy(wanted.name, self._jvm, index)


def _make(wanted: Wanted, settings: Mapping[str, str]) -> Any:
    module, _, name = wanted.name.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise WrongPlugin(wanted, f"{error}; PYTHONPATH says where else to look for it") from error
    except (AttributeError, ValueError) as error:
        raise WrongPlugin(wanted, f"{error}; it must be named as module:Class") from error
    except Exception as error:
        raise WrongPlugin(wanted, f"the module cannot be imported: {error!r}") from error
    if not inspect.isclass(found) or not callable(getattr(found, _METHODS[wanted.kind], None)):
        raise WrongPlugin(wanted, f"it is no class with a method {_METHODS[wanted.kind]}")
    try:
        made = found()
        if hasattr(made, "configure"):
            made.configure(settings)
    except Exception as error:
        raise WrongPlugin(wanted, f"it cannot be made: {error!r}") from error
    return made
