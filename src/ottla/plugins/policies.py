"""Controller policies that are plug-ins, in Python or in Java.

The verdict of a policy is None or the error for the client. If a policy fails or times out, the request is refused.
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
"""The timeout for all questions of one request; clients wait for 30 s."""

Question = NewTopic | AlteredConfigs
Verdict = ApiError | None
T = TypeVar("T")


class Policy(Protocol):
    """One policy of a controller."""

    async def judge(self, questions: Sequence[Any]) -> list[Verdict]:
        """Return the verdict on each question, judged in order."""


class PluginThread:
    """A thread that calls Python plug-ins. It is a daemon: a plug-in that hangs does not keep the process alive."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Queue a call, and return its result as a future."""
        answer: Future[T] = Future()
        self._calls.put((answer, call))
        return answer

    def stop(self) -> None:
        """End the thread after the queued calls."""
        self._calls.put(None)

    def _run(self) -> None:
        while (waiting := self._calls.get()) is not None:
            answer, call = waiting
            if answer.set_running_or_notify_cancel():
                try:
                    answer.set_result(call())
                except Exception as error:  # noqa: BLE001 (passed to the caller)
                    answer.set_exception(RuntimeError(repr(error)) if isinstance(error, StopIteration) else error)
                except BaseException as error:  # noqa: BLE001 (SystemExit in a plug-in must not end the thread)
                    answer.set_exception(RuntimeError(f"it raised {error!r}"))


class PythonPolicy:
    """A policy that is a Python class, called in a thread."""

    def __init__(self, name: str, plugin: Any, thread: PluginThread) -> None:
        self._name = name
        self._validate: Callable[[Any], object] = plugin.validate
        self._thread = thread

    async def judge(self, questions: Sequence[Any]) -> list[Verdict]:
        answer = self._thread.submit(lambda: [self._verdict(question) for question in questions])
        try:
            return await asyncio.wait_for(asyncio.wrap_future(answer), TIMEOUT_S)
        except TimeoutError:
            return [_refusal(self._name, f"it did not answer within {TIMEOUT_S:.0f} s")] * len(questions)

    def _verdict(self, question: Any) -> Verdict:
        try:
            self._validate(question)
        except ApiError as error:
            return error
        except (Exception, SystemExit) as error:  # any failure refuses the request
            logger.error("the policy %s failed", self._name, exc_info=error)
            return UnknownServerError()
        return None


class JavaPolicy:
    """A policy that is a Java class, called in the JVM."""

    def __init__(self, name: str, jvm: Jvm, index: int) -> None:
        self._name = name
        self._jvm = jvm
        self._index = index

    async def judge(self, questions: Sequence[Any]) -> list[Verdict]:
        answer = self._jvm.ask(self._index, [_encode(question) for question in questions])
        try:
            verdicts = await asyncio.wait_for(asyncio.wrap_future(answer), TIMEOUT_S)
        except TimeoutError:
            logger.error("the policy %s did not answer within %d s; restarting its JVM", self._name, TIMEOUT_S)
            self._jvm.give_up()
            return [_refusal(self._name, f"it did not answer within {TIMEOUT_S:.0f} s")] * len(questions)
        except (NoAnswer, Refused, Failed) as error:
            return [_refusal(self._name, str(error))] * len(questions)
        return [None if verdict is None else by_code(verdict[0])(verdict[1]) for verdict in verdicts]


def _refusal(name: str, reason: str) -> PolicyViolation:
    return PolicyViolation(f"The policy {name} could not decide: {reason}.")


def _encode(question: Question) -> list[object]:
    match question:
        case NewTopic():
            replicas = question.assignments
            assignments = None if replicas is None else {number: numbers(ids) for number, ids in replicas.items()}
            configs = dict(question.configs)
            return [question.name, question.partitions, question.replication_factor, assignments, configs]
        case AlteredConfigs():
            return [ResourceType[question.resource_type].value, question.resource_name, dict(question.configs)]
