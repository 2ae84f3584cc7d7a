"""The ISR changes that this broker's leaders propose to the controller (AlterPartition), one request at a time.

A request has many proposals. It is retried until it is answered, as long as a partition still has its proposal. The
partition handles the answer, and decides whether to send the proposal again.
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
"""Sends a request to the controller, and later calls one of the two callbacks."""


class IsrChanges:
    """The proposals that the controller has not decided yet."""

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
        """Whether a request is in flight or scheduled."""

    def __len__(self) -> int:
        return len(self._waiting)

    def submit(self, partition: Partition, proposal: Proposal) -> None:
        """Send a proposal to the controller. It replaces one of an earlier term."""
        self._waiting[partition.topic_id, partition.index] = partition, proposal
        if not self._is_busy:
            # After this step of the event loop, in which other partitions may have proposals too.
            self._schedule(0)

    def _schedule(self, delay_s: float) -> None:
        self._is_busy = True
        self._call_later(delay_s, self._send_request)

    def _send_request(self) -> None:
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
            lambda response: self._on_response(under_way, response),
            self._on_failure,
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
        """Return an ISR member with the broker epoch of its last fetch; -1 if that is unknown."""
        if broker == self._broker_id:
            return BrokerState(broker_id=broker, broker_epoch=self._broker_epoch())
        follower = partition.followers.get(broker)
        epoch = None if follower is None else follower.broker_epoch
        return BrokerState(broker_id=broker, broker_epoch=-1 if epoch is None else epoch)

    def _on_response(self, under_way: Sequence[tuple[Partition, Proposal]], response: AlterPartitionResponse) -> None:
        if response.error_code != NONE:
            self._on_failure(by_code(response.error_code)("the controller rejected the ISR changes"))
            return
        answers = {
            (topic.topic_id, answer.partition_index): answer for topic in response.topics for answer in topic.partitions
        }
        retries = False
        for partition, proposal in under_way:
            retries |= self._settle(partition, proposal, answers.get((partition.topic_id, partition.index)))
        self._completions.run()
        self._schedule(_RETRY_S if retries else 0)

    def _settle(self, partition: Partition, proposal: Proposal, answer: ResponsePartitionData | None) -> bool:
        """Pass the answer to its partition; return whether the proposal is sent again."""
        key = partition.topic_id, partition.index
        error: ApiError | None = None
        if answer is None:
            error = UnknownServerError("the controller's response lacks the partition")
        elif answer.error_code != NONE:
            error = by_code(answer.error_code)("the controller rejected the ISR change")
        if error is not None and partition.on_isr_refused(proposal, error):
            logger.warning("%s: %r failed, retrying: %s", partition, proposal, error)
            return True
        if error is not None:
            logger.info("%s: %r was rejected: %s", partition, proposal, error)
        if self._waiting.get(key) == (partition, proposal):
            del self._waiting[key]
        if error is None and answer is not None:
            partition.on_isr_decided(proposal, answer)
        return False

    def _on_failure(self, error: ApiError) -> None:
        logger.info("%d ISR changes are undecided, retrying: %s", len(self._waiting), error)
        self._schedule(_RETRY_S)
