"""Policies as the controller asks them, of either language.

What a policy says of a question is nothing, or the error that the client is told. A policy that fails, or does not
answer in time, has not agreed: that is an error too.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Final, Protocol, TypeVar

from ottla.metadata.controller.view import NewTopic
from ottla.metadata.image.values import ResourceType
from ottla.plugins import AlteredConfigs
from ottla.plugins.jvm import Failed, Jvm, NoAnswer, Refused
from ottla.plugins.values import numbers
from ottla.protocol.errors import ApiError, PolicyViolation, UnknownServerError, by_code

logger = logging.getLogger(__name__)

TIMEOUT_S: Final = 20.0
"""How long a policy may take for the questions of one request; a client waits for 30 s."""

Question = NewTopic | AlteredConfigs
Verdict = ApiError | None
T = TypeVar("T")


class Policy(Protocol):
    """One policy of a controller."""

    async def judge(self, questions: Sequence[Any]) -> list[Verdict]:
        """What it says of each question, asked one after the other."""


class PluginThread:
    """A thread in which plug-ins of Python are asked; it ends with the process, even if one of them never answers."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """What the call returns or raises, when its turn has come."""
        answer: Future[T] = Future()
        self._calls.put((answer, call))
        return answer

    def stop(self) -> None:
        """End when all calls are done."""
        self._calls.put(None)

    def _run(self) -> None:
        while (waiting := self._calls.get()) is not None:
            answer, call = waiting
            if answer.set_running_or_notify_cancel():
                try:
                    answer.set_result(call())
                except Exception as error:  # noqa: BLE001 (the caller gets it)
                    answer.set_exception(RuntimeError(repr(error)) if isinstance(error, StopIteration) else error)
                except BaseException as error:  # noqa: BLE001 (what ends a thread or a process ends no node)
                    answer.set_exception(RuntimeError(f"it raised {error!r}"))


class PythonPolicy:
    """A policy that is a class of Python, asked in a thread."""

    def __init__(self, name: str, plugin: Any, thread: PluginThread) -> None:
        self._name = name
        self._validate: Callable[[Any], object] = plugin.validate
        self._thread = thread

    async def judge(self, questions: Sequence[Any]) -> list[Verdict]:
        answer = self._thread.submit(lambda: [self._verdict(each) for each in questions])
        try:
            return await asyncio.wait_for(asyncio.wrap_future(answer), TIMEOUT_S)
        except TimeoutError:
            return [_unanswered(self._name, f"it did not answer within {TIMEOUT_S:.0f} s")] * len(questions)

    def _verdict(self, question: Any) -> Verdict:
        try:
            self._validate(question)
        except ApiError as error:
            return error
        except (Exception, SystemExit) as error:  # in whatever way it fails, it has not agreed
            logger.error("the policy %s failed", self._name, exc_info=error)
            return UnknownServerError()
        return None


class JavaPolicy:
    """A policy that is a class of Java, asked in the JVM."""

    def __init__(self, name: str, jvm: Jvm, index: int) -> None:
        self._name = name
        self._jvm = jvm
        self._index = index

    async def judge(self, questions: Sequence[Any]) -> list[Verdict]:
        answer = self._jvm.ask(self._index, [_told(each) for each in questions])
        try:
            said = await asyncio.wait_for(asyncio.wrap_future(answer), TIMEOUT_S)
        except TimeoutError:
            logger.error("the policy %s did not answer within %d s: its JVM is ended", self._name, TIMEOUT_S)
            self._jvm.give_up()
            return [_unanswered(self._name, f"it did not answer within {TIMEOUT_S:.0f} s")] * len(questions)
        except (NoAnswer, Refused, Failed) as error:
            return [_unanswered(self._name, str(error))] * len(questions)
        return [None if each is None else by_code(each[0])(each[1]) for each in said]


def _unanswered(name: str, reason: str) -> PolicyViolation:
    return PolicyViolation(f"The policy {name} could not be asked: {reason}.")


def _told(question: Question) -> list[object]:
    match question:
        case NewTopic():
            given = question.assignments
            assignments = None if given is None else {number: numbers(brokers) for number, brokers in given.items()}
            configs = dict(question.configs)
            return [question.name, question.partitions, question.replication_factor, assignments, configs]
        case AlteredConfigs():
            return [ResourceType[question.resource_type].value, question.resource_name, dict(question.configs)]
