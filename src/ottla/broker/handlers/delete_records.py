"""DeleteRecords (key 21): raise log start offsets, and answer when those of all replicas have risen.

A partition whose replicas do not follow before the timeout is answered with REQUEST_TIMED_OUT. Records of internal
topics, and of topics that are compacted only, cannot be deleted.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.authorization.data_guards import guard_delete_records
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import LATER, Call, Later
from ottla.broker.requests.endpoint import endpoint
from ottla.metadata.controller.topic_names import INTERNAL_TOPICS
from ottla.protocol.errors import (
    NONE,
    ApiError,
    InvalidTopic,
    PolicyViolation,
    RequestTimedOut,
    StorageFailed,
    UnknownTopicOrPartition,
)
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.replication.partition import Partition
from ottla.replication.purgatory import Operation, complete_or_wait

_NO_LOW_WATERMARK: Final = -1


def delete_records_failed(request: DeleteRecordsRequest, version: int, error: ApiError) -> DeleteRecordsResponse:
    """Return the error for each partition."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_failed(part.partition_index, error) for part in topic.partitions],
            )
            for topic in request.topics
        ]
    )


@endpoint(ApiKey.DELETE_RECORDS, failed=delete_records_failed, guard=guard_delete_records)
def delete_records(call: Call[BrokerNode], request: DeleteRecordsRequest) -> DeleteRecordsResponse | Later:
    """Delete records below each offset. If a partition is named twice, the last offset counts."""
    offsets_by_topic: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        offsets = offsets_by_topic.setdefault(topic.name, {})
        offsets.update({part.partition_index: part.offset for part in topic.partitions})
    response, waiting = DeleteRecordsResponse(), []
    for name, offsets in offsets_by_topic.items():
        answers = []
        for index, offset in offsets.items():
            try:
                pending = _delete(call.node, name, index, offset)
                answers.append(pending.answer)
                if not pending.settle():
                    waiting.append(pending)
            except ApiError as error:
                answers.append(_failed(index, error))
            except OSError as error:
                answers.append(_failed(index, StorageFailed(str(error))))
        if answers:
            response.topics.append(DeleteRecordsTopicResult(name=name, partitions=answers))
    if not waiting:
        return response
    lists = [pending.partition.waiting_deletes for pending in waiting]
    complete_or_wait(_Waiting(call, response, waiting), lists, call.node.timer, request.timeout_ms)
    return LATER


def _delete(node: BrokerNode, topic: str, index: int, offset: int) -> _Pending:
    if node.image.partition(topic, index) is None:
        raise UnknownTopicOrPartition(f"there is no partition {topic}-{index}")
    if topic in INTERNAL_TOPICS:
        raise InvalidTopic(f"records of the internal topic {topic} cannot be deleted")
    partition = node.partitions.get(topic, index)
    partition.check_leader()
    settings = partition.log.settings
    if settings.compact and not settings.delete:
        raise PolicyViolation(f"records of {topic}-{index} cannot be deleted: its cleanup.policy is compact only")
    return _Pending(node, partition, partition.delete_records(offset))


class _Pending:
    """A deletion in one partition, whose replicas may not have followed yet."""

    __slots__ = ("_node", "_offset", "answer", "partition")

    def __init__(self, node: BrokerNode, partition: Partition, offset: int) -> None:
        self._node = node
        self._offset = offset
        self.partition = partition
        self.answer = DeleteRecordsPartitionResult(
            partition_index=partition.index,
            low_watermark=partition.low_watermark(node.image.is_alive),
            error_code=RequestTimedOut.code,
        )

    def settle(self) -> bool:
        """Set the answer and return True, unless replicas still have to follow."""
        partition, answer = self.partition, self.answer
        if not partition.is_leader:
            answer.error_code = self._node.partitions.why_not_led(partition).code
            answer.low_watermark = _NO_LOW_WATERMARK
            return True
        reached = partition.low_watermark(self._node.image.is_alive)
        if reached < self._offset:
            return False
        answer.error_code, answer.low_watermark = NONE, reached
        return True


class _Waiting(Operation):
    """A request that waits until all replicas have followed."""

    kind = "DeleteRecords"

    __slots__ = ("_call", "_pending", "_response")

    def __init__(self, call: Call[BrokerNode], response: DeleteRecordsResponse, pending: list[_Pending]) -> None:
        super().__init__()
        self._call = call
        self._response = response
        self._pending = pending

    def try_complete(self) -> bool:
        self._pending = [pending for pending in self._pending if not pending.settle()]
        if self._pending:
            return False
        self._call.answer(self._response)
        return True

    def expire(self) -> None:
        self._call.answer(self._response)

    def give_up(self, error: Exception) -> None:
        self.finish()
        self._call.fail(error)


def _failed(index: int, error: ApiError) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=_NO_LOW_WATERMARK, error_code=error.code)
