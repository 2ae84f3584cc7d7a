"""Admin calls about transactions: list and describe them, and abort those whose producer is gone."""

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from ottla.client.cluster import Cluster
from ottla.client.metadata import TopicPartition, partition_label
from ottla.client.retries import raise_for_code
from ottla.protocol.errors import (
    ApiError,
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    InvalidTxnState,
    NotCoordinator,
    TransactionalIdNotFound,
)
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from ottla.protocol.messages.rpc.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from ottla.protocol.messages.rpc.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.rpc.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.rpc.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.protocol.messages.rpc.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_TRANSACTION: Final = 1
_FIRST_OF_MANY: Final = 4
_FENCING_TIMEOUT_MS: Final = 60_000


class ListedTransaction(NamedTuple):
    """A transactional id and its coordinator."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class DescribedTransaction(NamedTuple):
    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int
    """-1 if no transaction is open."""
    partitions: tuple[TopicPartition, ...]


class ActiveProducer(NamedTuple):
    """The state of a producer in a partition."""

    producer_id: int
    epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    open_since_offset: int
    """The first offset of its open transaction, or -1."""


class TransactionCalls:
    """The calls of `Admin` about transactions."""

    cluster: Cluster

    async def transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
    ) -> list[ListedTransaction]:
        """Return the transactional ids that pass the filters, sorted by name."""
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=longer_than_ms,
            transactional_id_pattern=pattern,
        )

        async def ask(node: int) -> list[ListedTransaction]:
            answer: ListTransactionsResponse = await self.cluster.send(request, node=node)
            raise_for_code(answer.error_code, None, f"transactions of broker {node}")
            return [
                ListedTransaction(state.transactional_id, node, state.producer_id, state.transaction_state)
                for state in answer.transaction_states
            ]

        await self.cluster.retry(self.cluster.refresh)
        nodes = sorted(self.cluster.nodes)
        answers = await asyncio.gather(*(self.cluster.retry(partial(ask, node)) for node in nodes))
        return sorted(transaction for transactions in answers for transaction in transactions)

    async def transaction(self, transactional_id: str) -> DescribedTransaction:
        """Describe a transaction. Raise TransactionalIdNotFound if its coordinator does not know it."""

        async def attempt() -> DescribedTransaction:
            node = await self._coordinator(transactional_id)
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            answer: DescribeTransactionsResponse = await self.cluster.send(request, node=node)
            (state,) = answer.transaction_states
            raise_for_code(state.error_code, None, f"transactional id {transactional_id!r}")
            partitions = [(topic.topic, number) for topic in state.topics for number in topic.partitions]
            return DescribedTransaction(
                transactional_id,
                node,
                state.producer_id,
                state.producer_epoch,
                state.transaction_state,
                state.transaction_timeout_ms,
                state.transaction_start_time_ms,
                tuple(sorted(partitions)),
            )

        return await self.cluster.retry(attempt, should_retry=_may_succeed_later)

    async def producers(self, topic: str, partition: int) -> list[ActiveProducer]:
        """Return the active producers of a partition, sorted by id."""

        async def attempt() -> list[ActiveProducer]:
            node = (await self.cluster.leader_of(topic, partition)).leader
            request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[partition])])
            answer: DescribeProducersResponse = await self.cluster.send(request, node=node)
            entry = answer.topics[0].partitions[0]
            raise_for_code(entry.error_code, entry.error_message, partition_label(topic, partition))
            return sorted(
                ActiveProducer(
                    producer.producer_id,
                    producer.producer_epoch,
                    producer.coordinator_epoch,
                    producer.last_sequence,
                    producer.last_timestamp,
                    producer.current_txn_start_offset,
                )
                for producer in entry.active_producers
            )

        return await self.cluster.retry(attempt)

    async def abort_transaction(self, transactional_id: str) -> None:
        """Fence the producer of a transactional id, which aborts its open transaction."""
        await self.transaction(transactional_id)  # raises if it does not exist: InitProducerId would create it

        async def attempt() -> None:
            node = await self._coordinator(transactional_id)
            request = InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=_FENCING_TIMEOUT_MS
            )
            answer: InitProducerIdResponse = await self.cluster.send(request, node=node)
            raise_for_code(answer.error_code, None, f"transactional id {transactional_id!r}")

        await self.cluster.retry(attempt, should_retry=_may_succeed_later)

    async def abort_hanging_transaction(self, topic: str, partition: int, start_offset: int) -> int:
        """Abort a hanging transaction: one that a partition has open, but that its coordinator does not know.

        Returns the id of its producer.
        """
        producers = await self.producers(topic, partition)
        matching = [producer for producer in producers if producer.open_since_offset == start_offset]
        if not matching:
            raise InvalidTxnState(
                f"{partition_label(topic, partition)}: no open transaction starts at offset {start_offset}"
            )
        (producer,) = matching
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            transaction_result=False,
            coordinator_epoch=max(producer.coordinator_epoch, 0),
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
        )

        async def attempt() -> None:
            node = (await self.cluster.leader_of(topic, partition)).leader
            answer: WriteTxnMarkersResponse = await self.cluster.send(
                WriteTxnMarkersRequest(markers=[marker]), node=node
            )
            raise_for_code(
                answer.markers[0].topics[0].partitions[0].error_code, None, partition_label(topic, partition)
            )

        await self.cluster.retry(attempt)
        return producer.producer_id

    async def _coordinator(self, transactional_id: str) -> int:
        connection = await self.cluster.any_connection()
        version = connection.version_of(ApiKey.FIND_COORDINATOR)
        request = FindCoordinatorRequest(
            key_type=_TRANSACTION, key=transactional_id, coordinator_keys=[transactional_id]
        )
        answer: FindCoordinatorResponse = await connection.send(request, version=version)
        answers: Sequence[tuple[int, str | None, int]] = (
            [(entry.error_code, entry.error_message, entry.node_id) for entry in answer.coordinators]
            if version >= _FIRST_OF_MANY
            else [(answer.error_code, answer.error_message, answer.node_id)]
        )
        code, message, node = answers[0]
        raise_for_code(code, message, f"coordinator of {transactional_id!r}")
        return node


def _may_succeed_later(error: ApiError) -> bool:
    if isinstance(error, TransactionalIdNotFound):
        return False
    return error.retriable or isinstance(error, NotCoordinator | CoordinatorNotAvailable | ConcurrentTransactions)
