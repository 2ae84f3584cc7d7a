"""Writes of transactions: their partitions are checked with, or added by, the transaction coordinator (KIP-890).

Only the first write of a transaction to a partition is held up; afterwards the partition knows that it is open. Up to
Produce v11 and TxnOffsetCommit v4 the producer has added the partition, and the coordinator is asked whether that is so
(`transaction.partition.verification.enable`); in later versions the partition is added by this.
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
from ottla.coordinators.runtime.transactions.checks import Ability, Refused
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
    """Ask about what a request would begin; None if it begins nothing, so that it may be appended at once."""
    if _is_under_way(call, request):
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
    if not producers or (ability is not Ability.ADDS and not call.node.transactions.is_verifying):
        return None
    verification = Verification(call.node, request.transactional_id or "", ability, *producers.pop())
    verification.start(batches)
    return verification


def without_questions(call: Call[BrokerNode], request: ProduceRequest) -> Verification:
    """For a request that begins nothing, but is not appended at once: whether that is still so must be checked then."""
    verification = Verification(
        call.node, request.transactional_id or "", _ability(call.version), NO_PRODUCER_ID, NO_PRODUCER_EPOCH
    )
    verification.is_done = True
    return verification


def _is_under_way(call: Call[BrokerNode], request: ProduceRequest) -> bool:
    """Whether all partitions of the request know of its transaction: nearly always."""
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


def _ability(version: int) -> Ability:
    if version >= _FIRST_TO_ADD:
        return Ability.ADDS
    return Ability.ABORTS if version >= _FIRST_TO_ABORT else Ability.OLD


def _transactional_header(data: object) -> BatchHeader | None:
    if not isinstance(data, memoryview) or len(data) < HEADER_BYTES:
        return None
    try:
        header = read_header(data, 0)
    except ProtocolError:
        return None  # whoever appends it says what is wrong
    return header if header.is_transactional else None


class Verification:
    """What the coordinator says about the partitions of one request."""

    def __init__(self, node: BrokerNode, transactional_id: str, ability: Ability, producer_id: int, epoch: int) -> None:
        self._node = node
        self._transactional_id = transactional_id
        self._ability = ability
        self._producer_id = producer_id
        self._epoch = epoch
        self._guards: dict[TopicPartition, Guard] = {}
        self._refused: Refused = {}
        self._led_elsewhere: set[TopicPartition] = set()
        self._give_up_ms = 0
        self._batches: dict[TopicPartition, tuple[Partition, BatchHeader]] = {}
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self.is_done = False

    def start(self, batches: dict[TopicPartition, tuple[Partition, BatchHeader]]) -> None:
        """Ask about the partitions on which the transaction is not open yet; `is_done` if that needs no waiting."""
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
                    names_epochs=self._ability is Ability.ADDS,
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

    def _answered(self, refused: Refused) -> None:
        # The last transaction is being ended, which is over soon: sooner than the producer could come again.
        is_early = any(isinstance(error, ConcurrentTransactions) for error in refused.values())
        if is_early and self._ability is Ability.ADDS and self._node.now_ms() < self._give_up_ms:
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
            raise self._told(error)

    def check_guard(self, partition: Partition, data: memoryview) -> None:
        """Raise if a transaction was ended since the coordinator was asked: right before its batch is appended."""
        if TopicPartition(partition.topic, partition.index) in self._led_elsewhere:
            # The producer must look for the leader: it would take anything else for the end of its transaction.
            raise NotLeader(f"{partition} was not the leader when the coordinator was to be asked")
        header = _transactional_header(data)
        if header is not None and self._node.transactions.is_verifying:
            guard = self._guards.get(TopicPartition(partition.topic, partition.index))
            partition.log.producers.check_verified(header, guard)

    def _told(self, error: ApiError) -> ApiError:
        """The coordinator's error as producers expect it: some know only one after which they come again."""
        is_concurrent = isinstance(error, ConcurrentTransactions) and self._ability is not Ability.ADDS
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
    """Let a group's coordinator decide on offsets, once that of the transaction knows that they are part of it."""
    ticket, partition = CallTicket(call, request), shard.partition
    ability = Ability.OLD
    if call.version >= _FIRST_COMMIT_TO_ABORT:
        ability = Ability.ADDS if call.version >= _FIRST_COMMIT_TO_ADD else Ability.ABORTS
    if ability is not Ability.ADDS and not call.node.transactions.is_verifying:
        return submit_to_coordinator(shard, ticket, decide)
    producers, producer_id, epoch = partition.log.producers, request.producer_id, request.producer_epoch
    guard = producers.start_verification(
        producer_id, epoch, NO_SEQUENCE, names_epochs=ability is Ability.ADDS, now_ms=call.node.now_ms()
    )

    def checked(state: GroupsState) -> Decision[Any]:
        if call.node.transactions.is_verifying:
            producers.check_open(producer_id, epoch, guard)
        return decide(state)

    def answered(refused: Refused) -> None:
        try:
            for error in refused.values():
                # Older clients come again after this one, and look for no other coordinator.
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
