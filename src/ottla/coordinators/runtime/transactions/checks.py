"""Requests of partition leaders to the transaction coordinator before the first append of a transaction (KIP-890).

For a producer that adds partitions itself the leader verifies that the partition was added. For a producer of
transaction.version 2 it adds the partition. The coordinator may be on this broker or on another one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from enum import Enum
from typing import Any, NamedTuple

from ottla.coordinators.runtime.broker_links import BrokerLinks, RequestBatcher
from ottla.coordinators.runtime.shards import Shards, partition_for
from ottla.coordinators.transactions.context import Context
from ottla.coordinators.transactions.partitions import add_partitions, verify_partitions
from ottla.coordinators.transactions.records import TOPIC
from ottla.coordinators.transactions.state import EPOCH_BUMPING, TopicPartition, TransactionsState
from ottla.metadata.image.image import Image
from ottla.protocol.errors import (
    ApiError,
    ClusterAuthorizationFailed,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidTxnState,
    NetworkFailed,
    ProducerFenced,
    RequestTimedOut,
    TransactionAbortable,
    UnsupportedVersion,
    by_code,
)
from ottla.protocol.messages.rpc.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.replication.runtime import Runtime
from ottla.storage.state_machine.decision import Decision

PartitionErrors = dict[TopicPartition, ApiError]
Done = Callable[[PartitionErrors], None]
"""Takes the errors of partitions that may not be written to; called at once or later."""


class ProducerAbility(Enum):
    """The abilities of a producer, by the version of its request."""

    OLD = "does not support TRANSACTION_ABORTABLE"
    ABORTS = "supports TRANSACTION_ABORTABLE"
    ADDS = "adds partitions by writing to them"


class _Verification(NamedTuple):
    """One request to verify or add partitions: the ticket of a decision on this broker, or an item for another one."""

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: Collection[TopicPartition]
    ability: ProducerAbility
    done: Done

    @property
    def is_check(self) -> bool:
        """Whether the partitions must be part of the transaction already."""
        return self.ability is not ProducerAbility.ADDS

    def fail(self, error: ApiError, /) -> None:
        """Fail all partitions with the same error."""
        self.answer(dict.fromkeys(self.partitions, error))

    def answer(self, errors: PartitionErrors, /) -> None:
        """Report the errors in the producer's terms."""
        self.done({partition: self._producer_error(error) for partition, error in errors.items()})

    def _producer_error(self, error: ApiError) -> ApiError:
        """Return the error for a producer, for an error of the coordinator."""
        if isinstance(error, ProducerFenced):
            return InvalidProducerEpoch(error.message)
        if isinstance(error, TransactionAbortable) and self.ability is ProducerAbility.OLD:
            return InvalidTxnState(error.message)
        return error


class TransactionChecks:
    """Verifies and adds partitions at transaction coordinators, on this broker and others."""

    def __init__(
        self,
        node_id: int,
        image: Callable[[], Image],
        shards: Shards[TransactionsState],
        links: BrokerLinks,
        runtime: Runtime,
        *,
        context: Callable[[], Context],
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._shards = shards
        self._completions = runtime.completions
        self._context = context
        self._remote: RequestBatcher[_Verification] = RequestBatcher(
            links, runtime.spawn, build_request=_request_of, on_answer=self._on_answer
        )

    def ask(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[TopicPartition],
        ability: ProducerAbility,
        done: Done,
    ) -> None:
        """Verify or add partitions. `done` is called once; at once if the coordinator is here and need not wait."""
        verification = _Verification(transactional_id, producer_id, epoch, partitions, ability, done)
        topic = self._image().topic(TOPIC)
        coordinator = (
            None if topic is None else topic.partitions[partition_for(transactional_id, len(topic.partitions))]
        )
        if coordinator is None or coordinator.leader < 0:
            verification.fail(CoordinatorNotAvailable(f"transactional id {transactional_id} has no coordinator"))
        elif coordinator.leader == self._node_id:
            self._ask_here(verification)
        else:
            self._remote.enqueue(coordinator.leader, verification)

    def _ask_here(self, verification: _Verification) -> None:
        def decide(state: TransactionsState) -> Decision[PartitionErrors]:
            id_, producer_id, epoch, partitions, *_ = verification
            if verification.is_check:
                errors = verify_partitions(state, id_, producer_id, epoch, partitions)
                return Decision((), {partition: error for partition, error in errors.items() if error is not None})
            no_errors: PartitionErrors = {}
            return add_partitions(
                state,
                self._context(),
                id_,
                producer_id,
                epoch,
                partitions,
                client_version=EPOCH_BUMPING,
                reply=no_errors,
            )

        try:
            shard = self._shards.shard_for(verification.transactional_id)
            shard.submit("VerifyTransaction", decide, verification)
        except ApiError as error:
            verification.fail(error)

    def _on_answer(self, verifications: Sequence[_Verification], answer: Any) -> None:
        if isinstance(answer, UnsupportedVersion):
            for verification in verifications:
                verification.answer({})  # an old broker without verification
        elif isinstance(answer, ApiError):
            network = isinstance(answer, NetworkFailed | RequestTimedOut)
            for verification in verifications:
                verification.fail(NetworkFailed(answer.message) if network else answer)
        else:
            _distribute(verifications, answer)
        self._completions.run()


def _request_of(
    verifications: Sequence[_Verification],
) -> tuple[AddPartitionsToTxnRequest, list[_Verification], list[_Verification]]:
    """Build one request with at most one verification for each transactional id."""
    taken: dict[str, _Verification] = {}
    deferred = []
    for verification in verifications:
        if verification.transactional_id in taken:
            deferred.append(verification)
        else:
            taken[verification.transactional_id] = verification
    transactions = [
        AddPartitionsToTxnTransaction(
            transactional_id=verification.transactional_id,
            producer_id=verification.producer_id,
            producer_epoch=verification.epoch,
            verify_only=verification.is_check,
            topics=_topics(verification.partitions),
        )
        for verification in taken.values()
    ]
    return AddPartitionsToTxnRequest(transactions=transactions), list(taken.values()), deferred


def _topics(partitions: Collection[TopicPartition]) -> list[AddPartitionsToTxnTopic]:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return [AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()]


def _distribute(verifications: Sequence[_Verification], answer: AddPartitionsToTxnResponse) -> None:
    """Answer each verification with its part of a response."""
    if answer.error_code:
        kind = by_code(answer.error_code)
        # The producer must not see that this broker lacks the permission: its partition is just not verified.
        error = InvalidTxnState() if kind is ClusterAuthorizationFailed else kind()
        for verification in verifications:
            verification.fail(error)
        return
    by_id = {result.transactional_id: result for result in answer.results_by_transaction}
    for verification in verifications:
        result = by_id.get(verification.transactional_id)
        if result is None:
            verification.fail(NetworkFailed("the coordinator's response lacks a transaction"))
            continue
        verification.answer(
            {
                TopicPartition(topic.name, partition.partition_index): by_code(partition.partition_error_code)()
                for topic in result.topic_results
                for partition in topic.results_by_partition
                if partition.partition_error_code
            }
        )
