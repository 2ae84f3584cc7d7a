"""Proposals of this broker's leaders to the controller (AlterPartition): many in one request, one request at a time.

A request is tried until it is answered, for as long as it has a proposal that its partition still stands by. What the
controller answers is the partition's to judge; some of it means that it is asked again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from ottla.protocol.errors import NONE, ApiError, UnknownServerError, by_code
from ottla.protocol.messages.rpc.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    ResponsePartitionData,
    TopicData,
)
from ottla.replication.in_sync import Proposal
from ottla.replication.partition import Partition
from ottla.replication.purgatory import CallLater, Completions

logger = logging.getLogger(__name__)

_RETRY_S = 0.05

Send = Callable[
    [AlterPartitionRequest, Callable[[AlterPartitionResponse], None], Callable[[ApiError], None]],
    None,
]
"""Takes a request to the controller; calls one of the two, later."""


class IsrChanges:
    """What the controller is to decide on."""

    def __init__(
        self,
        broker_id: int,
        send: Send,
        *,
        broker_epoch: Callable[[], int],
        call_later: CallLater,
        completions: Completions,
    ) -> None:
        self._broker_id = broker_id
        self._send = send
        self._broker_epoch = broker_epoch
        self._call_later = call_later
        self._completions = completions
        self._waiting: dict[tuple[bytes, int], tuple[Partition, Proposal]] = {}
        self._is_busy = False
        """Whether a request is under way, or the next one is due."""

    def __len__(self) -> int:
        return len(self._waiting)

    def submit(self, partition: Partition, proposal: Proposal) -> None:
        """Let the controller decide on a proposal; it replaces one of an earlier term."""
        self._waiting[partition.topic_id, partition.index] = partition, proposal
        if not self._is_busy:
            # Not before this step is over: others may have something to propose in it.
            self._again(0)

    def _again(self, delay_s: float) -> None:
        self._is_busy = True
        self._call_later(delay_s, self._ask)

    def _ask(self) -> None:
        self._is_busy = False
        under_way = [
            (partition, proposal)
            for partition, proposal in self._waiting.values()
            if partition.is_leader and partition.proposal is proposal
        ]
        self._waiting = {(partition.topic_id, partition.index): (partition, it) for partition, it in under_way}
        if not under_way:
            return
        self._is_busy = True
        self._send(
            self._request(under_way),
            lambda answer: self._answered(under_way, answer),
            self._failed,
        )

    def _request(self, under_way: Sequence[tuple[Partition, Proposal]]) -> AlterPartitionRequest:
        topics: dict[bytes, TopicData] = {}
        for partition, proposal in under_way:
            topics.setdefault(partition.topic_id, TopicData(topic_id=partition.topic_id)).partitions.append(
                PartitionData(
                    partition_index=partition.index,
                    leader_epoch=proposal.leader_epoch,
                    new_isr=list(proposal.isr),
                    new_isr_with_epochs=[self._member(partition, broker) for broker in proposal.isr],
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch(), topics=list(topics.values())
        )

    def _member(self, partition: Partition, broker: int) -> BrokerState:
        """A member in the life in which it fetched; -1 where that is not known."""
        if broker == self._broker_id:
            return BrokerState(broker_id=broker, broker_epoch=self._broker_epoch())
        follower = partition.followers.get(broker)
        epoch = None if follower is None else follower.broker_epoch
        return BrokerState(broker_id=broker, broker_epoch=-1 if epoch is None else epoch)

    def _answered(self, under_way: Sequence[tuple[Partition, Proposal]], answer: AlterPartitionResponse) -> None:
        if answer.error_code != NONE:
            self._failed(by_code(answer.error_code)("the controller refused changes of ISRs"))
            return
        answers = {(topic.topic_id, each.partition_index): each for topic in answer.topics for each in topic.partitions}
        again = False
        for partition, proposal in under_way:
            again |= self._settle(partition, proposal, answers.get((partition.topic_id, partition.index)))
        self._completions.run()
        self._again(_RETRY_S if again else 0)

    def _settle(self, partition: Partition, proposal: Proposal, answer: ResponsePartitionData | None) -> bool:
        """Tell a partition what became of its proposal; whether it is proposed again."""
        key = partition.topic_id, partition.index
        error: ApiError | None = None
        if answer is None:
            error = UnknownServerError("the controller left a partition out of its answer")
        elif answer.error_code != NONE:
            error = by_code(answer.error_code)("the controller refused a change of the ISR")
        if error is not None and partition.on_isr_refused(proposal, error):
            logger.warning("%s: %r was not decided on, and is proposed again: %s", partition, proposal, error)
            return True
        if error is not None:
            logger.info("%s: the controller refused %r: %s", partition, proposal, error)
        if self._waiting.get(key) == (partition, proposal):
            del self._waiting[key]
        if error is None and answer is not None:
            partition.on_isr_decided(proposal, answer)
        return False

    def _failed(self, error: ApiError) -> None:
        logger.info("%d changes of ISRs are not decided on yet: %s", len(self._waiting), error)
        self._again(_RETRY_S)
