"""Transactional writes: the transaction coordinator verifies or adds their partitions (KIP-890).

Only the first write of a transaction to a partition waits; afterwards the partition knows that the transaction is open.
Up to Produce v11 and TxnOffsetCommit v4, the producer has added the partition, and the coordinator verifies that
(`transaction.partition.verification.enable`). In later versions, the write itself adds the partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import LATER, Call, Later
from ottla.broker.requests.coordinator_calls import CallTicket, submit_to_coordinator
from ottla.coordinators.groups.state import GroupsState
from ottla.coordinators.runtime.shard import Shard
from ottla.coordinators.runtime.transactions.checks import PartitionErrors, ProducerAbility
from ottla.coordinators.transactions.state import TopicPartition
from ottla.protocol.errors import (
    ApiError,
    ConcurrentTransactions,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    InvalidProducerIdMapping,
    NetworkFailed,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeader,
)
from ottla.protocol.messages.rpc.produce import ProduceRequest, TopicProduceData
from ottla.protocol.messages.rpc.txn_offset_commit import TxnOffsetCommitRequest
from ottla.protocol.wire.batch import (
    HEADER_BYTES,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    read_header,
)
from ottla.protocol.wire.errors import ProtocolError
from ottla.replication.partition import Partition
from ottla.storage.log.verification import Guard
from ottla.storage.state_machine.decision import Decision

_FIRST_TO_ADD: Final = 12
_FIRST_TO_ABORT: Final = 11
_FIRST_COMMIT_TO_ADD: Final = 5
_FIRST_COMMIT_TO_ABORT: Final = 4
_UNREACHABLE: Final = (NetworkFailed, CoordinatorLoading, CoordinatorNotAvailable, NotCoordinator)


def verification_of(call: Call[BrokerNode], request: ProduceRequest) -> Verification | None:
    """Start the verification of a request; return None if it starts no transaction and may be appended at once."""
    if _has_open_transaction(call, request):
        return None
    ability = _ability(call.version)
    batches: dict[TopicPartition, tuple[Partition, BatchHeader]] = {}
    for topic in request.topic_data:
        for part in topic.partition_data:
            header = _transactional_header(part.records)
            if header is None:
                continue
            partition = _partition(call, topic, part.index)
            if partition is not None:
                batches[TopicPartition(partition.topic, part.index)] = partition, header
    producers = {(header.producer_id, header.producer_epoch) for _, header in batches.values()}
    if len(producers) > 1:
        raise InvalidProducerIdMapping("Transactional records contained more than one producer ID")
    if not producers or (ability is not ProducerAbility.ADDS and not call.node.transactions.is_verifying):
        return None
    verification = Verification(call.node, request.transactional_id or "", ability, *producers.pop())
    verification.start(batches)
    return verification


def completed_verification(call: Call[BrokerNode], request: ProduceRequest) -> Verification:
    """Return the verification of a request that starts no transaction but is not appended at once.

    When the request is appended, its guard checks that this still holds.
    """
    verification = Verification(
        call.node, request.transactional_id or "", _ability(call.version), NO_PRODUCER_ID, NO_PRODUCER_EPOCH
    )
    verification.is_done = True
    return verification


def _has_open_transaction(call: Call[BrokerNode], request: ProduceRequest) -> bool:
    """Return whether the transaction is open on all partitions of the request, which is almost always so."""
    only: tuple[int, int] | None = None
    for topic in request.topic_data:
        for part in topic.partition_data:
            header = _transactional_header(part.records)
            partition = _partition(call, topic, part.index)
            if header is None or partition is None or not partition.is_leader:
                return False
            producer = header.producer_id, header.producer_epoch
            if only not in (None, producer) or not partition.log.producers.is_open(*producer):
                return False
            only = producer
    return only is not None


def _partition(call: Call[BrokerNode], topic: TopicProduceData, index: int) -> Partition | None:
    if call.version >= 13:
        return call.node.partitions.find_by_id(topic.topic_id, index)
    return call.node.partitions.find(topic.name, index)


def _ability(version: int) -> ProducerAbility:
    if version >= _FIRST_TO_ADD:
        return ProducerAbility.ADDS
    return ProducerAbility.ABORTS if version >= _FIRST_TO_ABORT else ProducerAbility.OLD


def _transactional_header(data: object) -> BatchHeader | None:
    if not isinstance(data, memoryview) or len(data) < HEADER_BYTES:
        return None
    try:
        header = read_header(data, 0)
    except ProtocolError:
        return None  # the append reports what is wrong
    return header if header.is_transactional else None


class Verification:
    """The coordinator's answer about the partitions of one request."""

    def __init__(
        self, node: BrokerNode, transactional_id: str, ability: ProducerAbility, producer_id: int, epoch: int
    ) -> None:
        self._node = node
        self._transactional_id = transactional_id
        self._ability = ability
        self._producer_id = producer_id
        self._epoch = epoch
        self._guards: dict[TopicPartition, Guard] = {}
        self._refused: PartitionErrors = {}
        self._led_elsewhere: set[TopicPartition] = set()
        self._give_up_ms = 0
        self._batches: dict[TopicPartition, tuple[Partition, BatchHeader]] = {}
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self.is_done = False

    def start(self, batches: dict[TopicPartition, tuple[Partition, BatchHeader]]) -> None:
        """Ask about the partitions on which the transaction is not open yet. Sets `is_done` if there are none."""
        self._batches = batches
        self._give_up_ms = self._node.now_ms() + self._node.transactions.retry_ms[1]
        self._ask()

    def _ask(self) -> None:
        now_ms = self._node.now_ms()
        self._guards, self._refused = {}, {}
        self._led_elsewhere = set()
        for where, (partition, header) in self._batches.items():
            if not partition.is_leader:
                self._led_elsewhere.add(where)
                continue
            try:
                guard = partition.log.producers.start_verification(
                    self._producer_id,
                    self._epoch,
                    header.base_sequence,
                    names_epochs=self._ability is ProducerAbility.ADDS,
                    now_ms=now_ms,
                )
            except ApiError as error:
                self._refused[where] = error
                continue
            if guard is not None:
                self._guards[where] = guard
        if not self._guards:
            self._finish()
            return
        self._node.transactions.checks.ask(
            self._transactional_id, self._producer_id, self._epoch, list(self._guards), self._ability, self._answered
        )

    def _answered(self, refused: PartitionErrors) -> None:
        # The last transaction is ending: asking again here takes less time than a retry of the producer.
        is_early = any(isinstance(error, ConcurrentTransactions) for error in refused.values())
        if is_early and self._ability is ProducerAbility.ADDS and self._node.now_ms() < self._give_up_ms:
            self._loop.call_later(self._node.transactions.retry_ms[0] / 1000, self._ask)
            return
        self._refused.update(refused)
        self._finish()

    def _finish(self) -> None:
        self.is_done = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        """Return when the coordinator has answered."""
        if not self.is_done:
            self._waiter = self._loop.create_future()
            await self._waiter

    def check_answer(self, partition: Partition) -> None:
        """Raise if the coordinator refused a partition."""
        if error := self._refused.get(TopicPartition(partition.topic, partition.index)):
            raise self._producer_error(error)

    def check_guard(self, partition: Partition, data: memoryview) -> None:
        """Raise if the transaction ended after the coordinator was asked. Called right before the batch is appended."""
        if TopicPartition(partition.topic, partition.index) in self._led_elsewhere:
            # The producer must look for the leader; with any other error it would abort its transaction.
            raise NotLeader(f"this broker did not lead {partition} when the transaction was to be verified")
        header = _transactional_header(data)
        if header is not None and self._node.transactions.is_verifying:
            guard = self._guards.get(TopicPartition(partition.topic, partition.index))
            partition.log.producers.check_verified(header, guard)

    def _producer_error(self, error: ApiError) -> ApiError:
        """Return the error for the producer: older producers retry only after NOT_ENOUGH_REPLICAS."""
        is_concurrent = isinstance(error, ConcurrentTransactions) and self._ability is not ProducerAbility.ADDS
        if is_concurrent or isinstance(error, _UNREACHABLE):
            return NotEnoughReplicas(
                "Unable to verify the partition has been added to the transaction."
                f" Underlying error: {type(error).name}"
            )
        return error


def commit_when_verified(
    call: Call[BrokerNode],
    request: TxnOffsetCommitRequest,
    shard: Shard[GroupsState],
    decide: Callable[[GroupsState], Decision[Any]],
) -> Later:
    """Let a group's coordinator decide on offsets, once the transaction coordinator has verified or added the group."""
    ticket, partition = CallTicket(call, request), shard.partition
    ability = ProducerAbility.OLD
    if call.version >= _FIRST_COMMIT_TO_ABORT:
        ability = ProducerAbility.ADDS if call.version >= _FIRST_COMMIT_TO_ADD else ProducerAbility.ABORTS
    if ability is not ProducerAbility.ADDS and not call.node.transactions.is_verifying:
        return submit_to_coordinator(shard, ticket, decide)
    producers, producer_id, epoch = partition.log.producers, request.producer_id, request.producer_epoch
    guard = producers.start_verification(
        producer_id, epoch, NO_SEQUENCE, names_epochs=ability is ProducerAbility.ADDS, now_ms=call.node.now_ms()
    )

    def checked(state: GroupsState) -> Decision[Any]:
        if call.node.transactions.is_verifying:
            producers.check_open(producer_id, epoch, guard)
        return decide(state)

    def answered(refused: PartitionErrors) -> None:
        try:
            for error in refused.values():
                # Older clients retry after this error, without looking for another coordinator.
                raise CoordinatorLoading(error.message) if isinstance(error, NetworkFailed) else error
            shard.submit(call.route.api.name, checked, ticket)
        except ApiError as error:
            ticket.fail(error)

    if guard is None:
        answered({})
    else:
        where = TopicPartition(partition.topic, partition.index)
        call.node.transactions.checks.ask(request.transactional_id, producer_id, epoch, [where], ability, answered)
    return LATER
