"""InitializeShareGroupState, ReadShareGroupState, WriteShareGroupState, DeleteShareGroupState and
ReadShareGroupStateSummary (keys 83 to 87): the requests of brokers to the share coordinator.

All five have the same shape: share partitions of one group, and a result for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.broker.authorization.actions import Operation
from ottla.broker.authorization.guards import of_cluster
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call, Later
from ottla.broker.requests.endpoint import Failed, Handler, endpoint
from ottla.broker.requests.gathering import Gathering
from ottla.coordinators.runtime.share.states import DELETE, INITIALIZE, READ, SUMMARIZE, WRITE, ShareStateOperation
from ottla.coordinators.share.state import SharePartitionKey, ShareStates
from ottla.protocol.errors import ApiError
from ottla.protocol.messages.apis import ApiKey
from ottla.storage.state_machine.decision import Decision


def _failed_at(operation: ShareStateOperation) -> Failed:
    def failed(request: Any, version: int, error: ApiError) -> Any:
        """Return the error for each partition."""
        return operation.response(
            results=[
                operation.topic_result(
                    topic_id=topic.topic_id,
                    partitions=[_refused(operation, part.partition, error) for part in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    return failed


def _handler_of(operation: ShareStateOperation) -> Handler:
    def handle(call: Call[BrokerNode], request: Any) -> Any:
        """Let the coordinator of each share partition decide. An empty request gets an empty answer."""
        if not request.group_id or not request.topics or not all(topic.partitions for topic in request.topics):
            return operation.response()
        requested = [
            (SharePartitionKey(request.group_id, topic.topic_id, part.partition), part)
            for topic in request.topics
            for part in topic.partitions
        ]
        return _ask_all(call, operation, requested)

    return handle


def _ask_all(
    call: Call[BrokerNode], operation: ShareStateOperation, requested: Sequence[tuple[SharePartitionKey, Any]]
) -> Later:
    sharing = call.node.sharing

    def finish(parts: Sequence[Any]) -> None:
        topics: dict[bytes, list[Any]] = {}
        for (key, _), part in zip(requested, parts, strict=True):
            topics.setdefault(key.topic_id, []).append(part)
        call.answer(
            operation.response(
                results=[
                    operation.topic_result(topic_id=topic_id, partitions=results)
                    for topic_id, results in topics.items()
                ]
            )
        )

    gathering: Gathering[Any] = Gathering(len(requested), finish)
    for number, (key, data) in enumerate(requested):

        def refused(error: ApiError, key: SharePartitionKey = key) -> Any:
            return _refused(operation, key.partition, error)

        def decide(state: ShareStates, key: SharePartitionKey = key, data: Any = data) -> Decision[Any]:
            return operation.decide(state, key, data, sharing.context())

        part = gathering.part(number, refused)
        try:
            sharing.shards.shard_for(key.coordinator_key).submit(operation.name, decide, part)
        except ApiError as error:
            part.fail(error)
    return gathering.all_requested()


def _refused(operation: ShareStateOperation, partition: int, error: ApiError) -> Any:
    return operation.result(partition=partition, error_code=error.code, error_message=error.message)


for _key, _step in (
    (ApiKey.INITIALIZE_SHARE_GROUP_STATE, INITIALIZE),
    (ApiKey.READ_SHARE_GROUP_STATE, READ),
    (ApiKey.WRITE_SHARE_GROUP_STATE, WRITE),
    (ApiKey.DELETE_SHARE_GROUP_STATE, DELETE),
    (ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, SUMMARIZE),
):
    endpoint(_key, failed=_failed_at(_step), guard=of_cluster(Operation.CLUSTER_ACTION))(_handler_of(_step))
