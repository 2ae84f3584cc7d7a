"""The requests of a transaction, from the task that writes in it and from the driver that ends it.

The request versions are older than KIP-890: partitions are added by AddPartitionsToTxn, and EndTxn does not bump the
epoch. So a repeated EndTxn with the same outcome succeeds.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, NamedTuple, TypeVar

from ottla.client.cluster import Cluster
from ottla.client.metadata import TopicPartition, partition_label
from ottla.client.producer_batches import ProducerIdentity
from ottla.client.retries import error_from_code, raise_for_code
from ottla.protocol.errors import ApiError, CoordinatorError, NetworkFailed, OperationNotAttempted
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.protocol.messages.rpc.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from ottla.protocol.messages.rpc.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.rpc.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.rpc.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.spark.connector.coordinators import TRANSACTION, find_coordinator

T = TypeVar("T")

_AT_MOST: Final = {ApiKey.INIT_PRODUCER_ID: 5, ApiKey.ADD_PARTITIONS_TO_TXN: 3, ApiKey.END_TXN: 4}
ONGOING: Final = "Ongoing"


class Transaction(NamedTuple):
    """One transaction: all that a process needs to end it."""

    id: str
    producer_id: int
    epoch: int

    @property
    def identity(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.epoch)


class TransactionState(NamedTuple):
    """The coordinator's description of a transactional id."""

    producer_id: int
    epoch: int
    state: str


class TransactionCalls:
    """Requests to transaction coordinators."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._coordinators: dict[str, int] = {}

    async def begin(self, transactional_id: str, timeout_s: float) -> Transaction:
        """Start a new epoch of a transactional id: abort its open transaction and fence its previous producer."""
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=int(timeout_s * 1000))

        async def attempt(node: int) -> Transaction:
            answer: InitProducerIdResponse = await self._send(node, ApiKey.INIT_PRODUCER_ID, request)
            raise_for_code(answer.error_code, None, f"transactional id {transactional_id!r}")
            return Transaction(transactional_id, answer.producer_id, answer.producer_epoch)

        return await self._call_coordinator(transactional_id, attempt)

    async def add_partitions(self, transaction: Transaction, keys: Iterable[TopicPartition]) -> None:
        """Add the partitions that the transaction is about to write to."""
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for topic, partition in keys:
            topics.setdefault(topic, AddPartitionsToTxnTopic(name=topic)).partitions.append(partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transaction.id,
            v3_and_below_producer_id=transaction.producer_id,
            v3_and_below_producer_epoch=transaction.epoch,
            v3_and_below_topics=list(topics.values()),
        )

        async def attempt(node: int) -> None:
            answer: AddPartitionsToTxnResponse = await self._send(node, ApiKey.ADD_PARTITIONS_TO_TXN, request)
            errors = [
                error_from_code(result.partition_error_code, None, partition_label(topic.name, result.partition_index))
                for topic in answer.results_by_topic_v3_and_below
                for result in topic.results_by_partition
                if result.partition_error_code
            ]
            # If one partition is refused, the others have OPERATION_NOT_ATTEMPTED, which does not say why.
            for error in sorted(errors, key=lambda error: isinstance(error, OperationNotAttempted)):
                raise error

        await self._call_coordinator(transaction.id, attempt)

    async def end(self, transaction: Transaction, *, commit: bool) -> None:
        """Commit or abort. Raise ProducerFenced, InvalidProducerEpoch or InvalidTxnState if it ended differently."""
        request = EndTxnRequest(
            transactional_id=transaction.id,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.epoch,
            committed=commit,
        )

        async def attempt(node: int) -> None:
            answer: EndTxnResponse = await self._send(node, ApiKey.END_TXN, request)
            raise_for_code(answer.error_code, None, f"transactional id {transaction.id!r}")

        await self._call_coordinator(transaction.id, attempt)

    async def end_all(self, transactions: Iterable[Transaction], *, commit: bool) -> dict[Transaction, ApiError]:
        """End transactions concurrently; return the error of each one that failed."""
        listed = list(transactions)
        endings = (self.end(transaction, commit=commit) for transaction in listed)
        outcomes = await asyncio.gather(*endings, return_exceptions=True)
        failed: dict[Transaction, ApiError] = {}
        for transaction, outcome in zip(listed, outcomes, strict=True):
            if isinstance(outcome, ApiError):
                failed[transaction] = outcome
            elif outcome is not None:
                raise outcome
        return failed

    async def describe(self, transactional_id: str) -> TransactionState:
        """Return the state of a transactional id; raise TransactionalIdNotFound."""
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])

        async def attempt(node: int) -> TransactionState:
            answer: DescribeTransactionsResponse = await self._cluster.send(request, node=node)
            (described,) = answer.transaction_states
            raise_for_code(described.error_code, None, f"transactional id {transactional_id!r}")
            return TransactionState(described.producer_id, described.producer_epoch, described.transaction_state)

        return await self._call_coordinator(transactional_id, attempt)

    async def open_ids(self, prefix: str) -> list[str]:
        """Return the transactional ids with a prefix that have an open transaction, from all nodes."""
        await self._cluster.retry(self._cluster.refresh)
        ids: list[str] = []
        for node in self._cluster.nodes:
            request = ListTransactionsRequest(state_filters=[ONGOING])
            answer: ListTransactionsResponse = await self._cluster.ask(request, node=node)
            raise_for_code(answer.error_code, None, f"transactions of node {node}")
            ids += [state.transactional_id for state in answer.transaction_states]
        return sorted(transactional_id for transactional_id in ids if transactional_id.startswith(prefix))

    async def _send(self, node: int, key: ApiKey, request: Any) -> Any:
        connection = await self._cluster.connection(node)
        version = connection.version_of(key, at_most=_AT_MOST[key])
        return await connection.send(request, version=version, timeout_s=self._cluster.request_timeout_s)

    async def _call_coordinator(self, transactional_id: str, attempt: Callable[[int], Awaitable[T]]) -> T:
        """Run an attempt against the coordinator, and look the coordinator up again if it has moved."""

        async def once() -> T:
            node = self._coordinators.get(transactional_id)
            if node is None:
                node = await find_coordinator(self._cluster, transactional_id, TRANSACTION)
                self._coordinators[transactional_id] = node
            try:
                return await attempt(node)
            except (CoordinatorError, NetworkFailed):
                self._coordinators.pop(transactional_id, None)
                raise

        return await self._cluster.retry(once)
