"""The client of the share coordinators, on this broker and others.

Requests that fail because a coordinator is moving, loading or missing are retried for a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from ottla.coordinators.runtime.broker_links import BrokerLinks, RequestBatcher
from ottla.coordinators.runtime.shards import Shards, partition_for
from ottla.coordinators.share import coordinator
from ottla.coordinators.share.context import Context
from ottla.coordinators.share.state import TOPIC, SharePartitionKey, ShareStates
from ottla.metadata.image.image import Image
from ottla.protocol.errors import (
    ApiError,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    NetworkFailed,
    NotCoordinator,
    RequestTimedOut,
    UnknownTopicOrPartition,
    by_code,
)
from ottla.protocol.messages.rpc import delete_share_group_state as deleting
from ottla.protocol.messages.rpc import initialize_share_group_state as initializing
from ottla.protocol.messages.rpc import read_share_group_state as reading
from ottla.protocol.messages.rpc import read_share_group_state_summary as summarizing
from ottla.protocol.messages.rpc import write_share_group_state as writing
from ottla.replication.runtime import Runtime
from ottla.storage.state_machine.decision import Decision

Done = Callable[[Any], None]
"""Takes a partition's result or an ApiError; called once, at once or later."""

_FIRST_RETRY_MS: Final = 50
_LONGEST_RETRY_MS: Final = 2_000
_GIVE_UP_MS: Final = 30_000
_RETRIED: Final = (
    NotCoordinator,
    CoordinatorNotAvailable,
    CoordinatorLoading,
    NetworkFailed,
    RequestTimedOut,
)


class ShareStateOperation(NamedTuple):
    """One of the five operations of a share coordinator, with its message classes."""

    name: str
    decide: Callable[[ShareStates, SharePartitionKey, Any, Context], Decision[Any]]
    request: type[Any]
    topic: type[Any]
    response: type[Any]
    topic_result: type[Any]
    result: type[Any]
    retried: tuple[type[ApiError], ...] = _RETRIED


INITIALIZE: Final = ShareStateOperation(
    "InitializeShareGroupState",
    coordinator.initialize,
    initializing.InitializeShareGroupStateRequest,
    initializing.InitializeStateData,
    initializing.InitializeShareGroupStateResponse,
    initializing.InitializeStateResult,
    initializing.PartitionResult,
    (*_RETRIED, UnknownTopicOrPartition),  # the coordinator may not know a new topic yet
)
READ: Final = ShareStateOperation(
    "ReadShareGroupState",
    coordinator.read,
    reading.ReadShareGroupStateRequest,
    reading.ReadStateData,
    reading.ReadShareGroupStateResponse,
    reading.ReadStateResult,
    reading.PartitionResult,
)
WRITE: Final = ShareStateOperation(
    "WriteShareGroupState",
    coordinator.write,
    writing.WriteShareGroupStateRequest,
    writing.WriteStateData,
    writing.WriteShareGroupStateResponse,
    writing.WriteStateResult,
    writing.PartitionResult,
)
DELETE: Final = ShareStateOperation(
    "DeleteShareGroupState",
    coordinator.delete,
    deleting.DeleteShareGroupStateRequest,
    deleting.DeleteStateData,
    deleting.DeleteShareGroupStateResponse,
    deleting.DeleteStateResult,
    deleting.PartitionResult,
)
SUMMARIZE: Final = ShareStateOperation(
    "ReadShareGroupStateSummary",
    coordinator.summarize,
    summarizing.ReadShareGroupStateSummaryRequest,
    summarizing.ReadStateSummaryData,
    summarizing.ReadShareGroupStateSummaryResponse,
    summarizing.ReadStateSummaryResult,
    summarizing.PartitionResult,
)
OPERATIONS: Final = (INITIALIZE, READ, WRITE, DELETE, SUMMARIZE)


class _Question(NamedTuple):
    """One share partition's part of a request, until it is answered."""

    operation: ShareStateOperation
    key: SharePartitionKey
    data: Any
    done: Done
    until_ms: int
    retry_ms: int = _FIRST_RETRY_MS


class ShareStateClient:
    """Sends operations to the share coordinators."""

    def __init__(
        self,
        node_id: int,
        image: Callable[[], Image],
        shards: Shards[ShareStates],
        links: BrokerLinks,
        runtime: Runtime,
        *,
        context: Callable[[], Context],
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._shards = shards
        self._loop = runtime.loop
        self._completions = runtime.completions
        self._context = context
        self.create_topic: Callable[[str], None] = lambda _: None
        """Requests the creation of a topic from the controller; set after construction."""
        self._remote: Mapping[str, RequestBatcher[_Question]] = {
            operation.name: RequestBatcher(
                links, runtime.spawn, build_request=partial(_request_of, operation), on_answer=self._on_answer
            )
            for operation in OPERATIONS
        }

    def ask(self, operation: ShareStateOperation, key: SharePartitionKey, data: Any, done: Done) -> None:
        """Send an operation to a share partition's coordinator; retry while the coordinator is not available."""
        self._ask(_Question(operation, key, data, done, self._now_ms() + _GIVE_UP_MS))

    async def ask_all(
        self, operation: ShareStateOperation, requests: Sequence[tuple[SharePartitionKey, Any]]
    ) -> list[Any]:
        """Return the results for share partitions in order, with an ApiError for each failure."""
        futures = []
        for key, data in requests:
            future = self._loop.create_future()
            futures.append(future)
            self.ask(operation, key, data, partial(_resolve, future))
        self._completions.run()
        return [await future for future in futures]

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def _ask(self, question: _Question) -> None:
        topic = self._image().topic(TOPIC)
        if topic is None:
            self.create_topic(TOPIC)
            self._failed(question, CoordinatorNotAvailable(f"{TOPIC} does not exist yet"))
            return
        coordinator_partition = topic.partitions[partition_for(question.key.coordinator_key, len(topic.partitions))]
        if coordinator_partition.leader < 0:
            self._failed(
                question, CoordinatorNotAvailable(f"share partition {question.key.coordinator_key} has no coordinator")
            )
        elif coordinator_partition.leader == self._node_id:
            self._ask_here(question)
        else:
            self._remote[question.operation.name].enqueue(coordinator_partition.leader, question)

    def _ask_here(self, question: _Question) -> None:
        operation, key, data, *_ = question
        try:
            self._shards.shard_for(key.coordinator_key).submit(
                operation.name,
                lambda state: operation.decide(state, key, data, self._context()),
                _Ticket(self, question),
            )
        except ApiError as error:
            self._failed(question, error)

    def _failed(self, question: _Question, error: ApiError) -> None:
        """Retry later, unless the error is final or the time is over."""
        if not isinstance(error, question.operation.retried) or self._now_ms() >= question.until_ms:
            question.done(error)
            return
        later = question._replace(retry_ms=min(2 * question.retry_ms, _LONGEST_RETRY_MS))
        self._loop.call_later(question.retry_ms / 1000, self._retry, later)

    def _retry(self, question: _Question) -> None:
        self._ask(question)
        self._completions.run()

    def _on_answer(self, questions: Sequence[_Question], answer: Any) -> None:
        results: dict[tuple[bytes, int], Any] = {}
        if not isinstance(answer, ApiError):
            results = {
                (topic.topic_id, partition.partition): partition
                for topic in answer.results
                for partition in topic.partitions
            }
        for question in questions:
            result = results.get((question.key.topic_id, question.key.partition))
            if isinstance(answer, ApiError):
                self._failed(question, answer)
            elif result is None:
                question.done(NetworkFailed("the coordinator's response lacks a share partition"))
            elif result.error_code:
                self._failed(question, by_code(result.error_code)(result.error_message or ""))
            else:
                question.done(result)
        self._completions.run()


class _Ticket:
    """The ticket of a question to a coordinator on this broker."""

    __slots__ = ("_client", "_question")

    def __init__(self, client: ShareStateClient, question: _Question) -> None:
        self._client = client
        self._question = question

    def answer(self, response: Any, /) -> None:
        self._question.done(response)

    def fail(self, error: ApiError, /) -> None:
        self._client._failed(self._question, error)


def _request_of(
    operation: ShareStateOperation, questions: Sequence[_Question]
) -> tuple[Any, list[_Question], list[_Question]]:
    """Build one request for one group, with at most one question for each share partition."""
    group_id = questions[0].key.group_id
    taken: dict[SharePartitionKey, _Question] = {}
    deferred = []
    for question in questions:
        if question.key.group_id == group_id and question.key not in taken:
            taken[question.key] = question
        else:
            deferred.append(question)
    topics: dict[bytes, list[Any]] = {}
    for key, question in taken.items():
        topics.setdefault(key.topic_id, []).append(question.data)
    request = operation.request(
        group_id=group_id,
        topics=[operation.topic(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()],
    )
    return request, list(taken.values()), deferred


def _resolve(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)
