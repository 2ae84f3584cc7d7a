"""AddPartitionsToTxn (key 24): add partitions to a transaction, or check that they are in it.

Up to v3 a producer sends the request, for one transaction. From v4 on a broker sends it, for many transactions, and may
only verify (KIP-890). From v2 on a fenced producer gets PRODUCER_FENCED. If a partition is unknown, none is added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ottla.broker.authorization.group_guards import guard_add_partitions
from ottla.broker.handlers.transaction_errors import client_error
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call, Later
from ottla.broker.requests.endpoint import endpoint
from ottla.broker.requests.gathering import Gathering
from ottla.coordinators.runtime.transactions.marker_writing import GROUPS_TOPIC
from ottla.coordinators.transactions.partitions import add_partitions, verify_partitions
from ottla.coordinators.transactions.records import TOPIC
from ottla.coordinators.transactions.state import EPOCH_BUMPING, TopicPartition, TransactionsState
from ottla.protocol.errors import (
    NONE,
    ApiError,
    InvalidRequest,
    OperationNotAttempted,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from ottla.storage.state_machine.decision import Decision

_FIRST_FROM_BROKERS: Final = 4
_INTERNAL: Final = frozenset({GROUPS_TOPIC, TOPIC, "__share_group_state"})
Result = AddPartitionsToTxnResult
ErrorOf = Callable[[TopicPartition], ApiError | None]


def add_partitions_to_txn_failed(
    request: AddPartitionsToTxnRequest, version: int, error: ApiError
) -> AddPartitionsToTxnResponse:
    """Return the error for each partition, or from v4 on for the request."""
    if version >= _FIRST_FROM_BROKERS:
        return AddPartitionsToTxnResponse(error_code=error.code)
    (only,) = _transactions(request, version)
    return _response([_result(only, lambda _: error, version)], version)


@endpoint(ApiKey.ADD_PARTITIONS_TO_TXN, failed=add_partitions_to_txn_failed, guard=guard_add_partitions)
def add_partitions_to_txn(call: Call[BrokerNode], request: AddPartitionsToTxnRequest) -> Later:
    """Let the coordinator of each transaction decide."""
    version = call.version
    transactions = _transactions(request, version)
    gathering: Gathering[Result] = Gathering(
        len(transactions), lambda results: call.answer(_response(results, version))
    )
    for number, transaction in enumerate(transactions):
        _handle(call, transaction, gathering, number)
    return gathering.all_requested()


def _transactions(request: AddPartitionsToTxnRequest, version: int) -> list[AddPartitionsToTxnTransaction]:
    if version >= _FIRST_FROM_BROKERS:
        return request.transactions
    return [
        AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
    ]


def _handle(
    call: Call[BrokerNode], transaction: AddPartitionsToTxnTransaction, gathering: Gathering[Result], number: int
) -> None:
    version = call.version
    partitions = [TopicPartition(topic.name, index) for topic in transaction.topics for index in topic.partitions]
    errors = _partition_errors(call, partitions)
    if errors:
        result = _result(transaction, lambda partition: errors.get(partition) or OperationNotAttempted(), version)
        gathering.take(number, result)
        return
    part = gathering.part(number, lambda error: _result(transaction, lambda _: error, version))

    def decide(state: TransactionsState) -> Decision[Result]:
        transactional_id = transaction.transactional_id
        producer_id, epoch = transaction.producer_id, transaction.producer_epoch
        if transaction.verify_only:
            verified = verify_partitions(state, transactional_id, producer_id, epoch, partitions)
            return Decision((), _result(transaction, verified.get, version))
        return add_partitions(
            state,
            call.node.transactions.context(),
            transactional_id,
            producer_id,
            epoch,
            partitions,
            client_version=EPOCH_BUMPING if version >= _FIRST_FROM_BROKERS else 0,
            reply=_result(transaction, lambda _: None, version),
        )

    try:
        if not transaction.transactional_id:
            raise InvalidRequest("a transactional id must not be empty")
        call.node.transactions.shards.shard_for(transaction.transactional_id).submit("AddPartitionsToTxn", decide, part)
    except ApiError as error:
        part.fail(error)


def _partition_errors(call: Call[BrokerNode], partitions: Sequence[TopicPartition]) -> dict[TopicPartition, ApiError]:
    """Return the errors of unknown partitions and, if a producer sent the request, of internal topics."""
    errors: dict[TopicPartition, ApiError] = {}
    for where in partitions:
        if call.version < _FIRST_FROM_BROKERS and where.topic in _INTERNAL:
            errors[where] = TopicAuthorizationFailed(f"{where.topic} is internal")
        elif call.node.image.partition(where.topic, where.partition) is None:
            errors[where] = UnknownTopicOrPartition(f"there is no partition {where.topic}-{where.partition}")
    return errors


def _result(transaction: AddPartitionsToTxnTransaction, error_of: ErrorOf, version: int) -> Result:
    def code(where: TopicPartition) -> int:
        error = error_of(where)
        return NONE if error is None else client_error(error, version, fenced_since=2).code

    return Result(
        transactional_id=transaction.transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=code(TopicPartition(topic.name, index))
                    )
                    for index in topic.partitions
                ],
            )
            for topic in transaction.topics
        ],
    )


def _response(results: Sequence[Result], version: int) -> AddPartitionsToTxnResponse:
    if version >= _FIRST_FROM_BROKERS:
        return AddPartitionsToTxnResponse(results_by_transaction=list(results))
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)
