"""Sending of transaction markers: each partition of an ended transaction gets one, wherever its leader is.

Leaders move and brokers fail, so each partition is retried until its leader has confirmed the marker. A deleted
partition needs none. When all partitions have their markers, the transaction is complete. A coordinator that loses its
shard stops; the next one finds the outcome in the log and sends all markers again, which leaders accept.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from ottla.coordinators.runtime.broker_links import BrokerLinks, RequestBatcher
from ottla.coordinators.runtime.shard import Shard
from ottla.coordinators.runtime.shards import Shards
from ottla.coordinators.runtime.transactions.marker_writing import ErrorCodes, MarkerWriter
from ottla.coordinators.transactions.context import Context
from ottla.coordinators.transactions.ending import complete_transaction, resume_ending
from ottla.coordinators.transactions.state import TopicPartition, Transaction, TransactionsState, TransactionStatus
from ottla.metadata.image.image import Image
from ottla.protocol.errors import (
    NONE,
    ApiError,
    InvalidProducerEpoch,
    NotCoordinator,
    TransactionCoordinatorFenced,
    UnsupportedForMessageFormat,
    UnsupportedVersion,
    name_of,
)
from ottla.protocol.messages.rpc.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.replication.runtime import Runtime
from ottla.storage.state_machine.decision import Ticket
from ottla.storage.state_machine.entries import Marker

logger = logging.getLogger(__name__)

_RETRY_S: Final = 0.05
_RETRY_MAX_S: Final = 1.0
_NO_LEADER: Final = -1
_NO_MARKER_NEEDED: Final = frozenset({NONE, UnsupportedForMessageFormat.code, UnsupportedVersion.code})
_OUTDATED: Final = frozenset({InvalidProducerEpoch.code, TransactionCoordinatorFenced.code})


class _EndingTransaction:
    """A transaction with partitions that have no marker yet."""

    def __init__(self, shard: Shard[TransactionsState], transaction: Transaction) -> None:
        self.shard = shard
        self.transaction = transaction
        self.open = set(transaction.partitions)
        self.retry_s = _RETRY_S
        self.is_cancelled = False
        self.marker = Marker(
            transaction.producer_id,
            transaction.epoch,
            transaction.status is TransactionStatus.PREPARE_COMMIT,
            shard.epoch,
            transaction.client_version,
        )


_MarkerBatch = tuple[_EndingTransaction, list[TopicPartition]]


class MarkerSender:
    """Sends transaction markers to partition leaders."""

    def __init__(
        self,
        node_id: int,
        image: Callable[[], Image],
        writer: MarkerWriter,
        links: BrokerLinks,
        runtime: Runtime,
        *,
        context: Callable[[], Context],
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._writer = writer
        self._loop = runtime.loop
        self._completions = runtime.completions
        self._context = context
        self._remote: RequestBatcher[_MarkerBatch] = RequestBatcher(
            links, runtime.spawn, build_request=_request_of, on_answer=self._on_answer
        )
        self.shards: Shards[TransactionsState] | None = None
        """The transaction coordinators of this broker, set after construction."""
        self.transaction_count = 0
        """The number of transactions that wait for markers."""

    def ticket(self, transaction: Transaction) -> Ticket:
        """Return the ticket that a decision to end a transaction answers when it is committed."""
        return _EndTicket(self, transaction.transactional_id)

    def begin(self, transaction: Transaction) -> None:
        """Send markers to all partitions of a transaction."""
        shard = self._shard(transaction.transactional_id)
        if shard is not None:
            ending = _EndingTransaction(shard, transaction)
            self.transaction_count += 1
            self._send(ending, ending.open)

    def retry_later(self, transactional_id: str, error: ApiError) -> None:
        """Look again later whether the transaction ends, because the decision may or may not be committed."""
        if not isinstance(error, NotCoordinator):
            self._later(_RETRY_MAX_S, lambda: self._resume(transactional_id))

    def _resume(self, transactional_id: str) -> None:
        shard = self._shard(transactional_id)
        if shard is not None:
            ticket = _RetryTicket(lambda error: self.retry_later(transactional_id, error))
            shard.submit(
                "ResumeTransaction", lambda state: resume_ending(state, self._context(), transactional_id), ticket
            )

    def _shard(self, transactional_id: str) -> Shard[TransactionsState] | None:
        """Return the coordinator if it is still active on this broker."""
        assert self.shards is not None
        try:
            shard = self.shards.shard_for(transactional_id)
        except NotCoordinator:
            return None
        return shard if shard.is_active else None

    # -- sending --

    def _send(self, ending: _EndingTransaction, partitions: Collection[TopicPartition]) -> None:
        image, by_leader = self._image(), dict[int, list[TopicPartition]]()
        for topic_partition in list(partitions):
            partition = image.partition(topic_partition.topic, topic_partition.partition)
            if partition is None:
                logger.info("partition %s-%d was deleted and needs no transaction marker", *topic_partition)
                ending.open.discard(topic_partition)
            else:
                by_leader.setdefault(partition.leader, []).append(topic_partition)
        for leader, led_partitions in by_leader.items():
            if leader == self._node_id:
                self._writer.write(ending.marker, led_partitions, lambda codes: self._settle(ending, codes))
            elif leader == _NO_LEADER:
                self._retry(ending, led_partitions)
            else:
                self._remote.enqueue(leader, (ending, led_partitions))
        if not by_leader:
            self._settle(ending, {})

    def _on_answer(self, batches: Sequence[_MarkerBatch], answer: Any) -> None:
        if isinstance(answer, ApiError):
            logger.info("cannot send transaction markers: %s; retrying", answer)
            for ending, partitions in batches:
                self._retry(ending, partitions)
            return
        codes = _codes_of(answer)
        for ending, partitions in batches:
            answered = codes.get(ending.marker.producer_id, {})
            self._settle(ending, {partition: answered[partition] for partition in partitions if partition in answered})
            if missing := [partition for partition in partitions if partition not in answered]:
                self._retry(ending, missing)
        self._completions.run()

    def _settle(self, ending: _EndingTransaction, codes: ErrorCodes) -> None:
        failed = []
        for partition, code in codes.items():
            if code in _NO_MARKER_NEEDED:
                ending.open.discard(partition)
            elif code in _OUTDATED:
                logger.warning(
                    "partition %s-%d rejected the marker of transactional id %s: %s; another coordinator took over",
                    *partition,
                    ending.transaction.transactional_id,
                    name_of(code),
                )
                self._stop(ending)
                return
            else:
                logger.info(
                    "partition %s-%d has no marker of transactional id %s yet: %s; retrying",
                    *partition,
                    ending.transaction.transactional_id,
                    name_of(code),
                )
                failed.append(partition)
        if failed:
            self._retry(ending, failed)
        elif not ending.open and not ending.is_cancelled:
            self._stop(ending)
            self._complete(ending)

    def _retry(self, ending: _EndingTransaction, partitions: Collection[TopicPartition]) -> None:
        delay_s, ending.retry_s = ending.retry_s, min(2 * ending.retry_s, _RETRY_MAX_S)

        def send_again() -> None:
            if ending.is_cancelled:
                return
            if self._shard(ending.transaction.transactional_id) is not ending.shard:
                self._stop(ending)
                return
            self._send(ending, partitions)

        self._later(delay_s, send_again)

    def _stop(self, ending: _EndingTransaction) -> None:
        if not ending.is_cancelled:
            ending.is_cancelled = True
            self.transaction_count -= 1

    def _complete(self, ending: _EndingTransaction) -> None:
        if not ending.shard.is_active:
            return

        def failed(error: ApiError) -> None:
            if not isinstance(error, NotCoordinator):
                self._later(_RETRY_MAX_S, lambda: self._complete(ending))

        ending.shard.submit(
            "CompleteTransaction",
            lambda state: complete_transaction(state, self._context(), ending.transaction),
            _RetryTicket(failed),
        )

    def _later(self, delay_s: float, act: Callable[[], None]) -> None:
        def run() -> None:
            act()
            self._completions.run()

        self._loop.call_later(delay_s, run)


class _EndTicket:
    """The ticket of a decision to end a transaction."""

    __slots__ = ("_sender", "_transactional_id")

    def __init__(self, sender: MarkerSender, transactional_id: str) -> None:
        self._sender = sender
        self._transactional_id = transactional_id

    def answer(self, response: Transaction, /) -> None:
        self._sender.begin(response)

    def fail(self, error: ApiError, /) -> None:
        self._sender.retry_later(self._transactional_id, error)


class _RetryTicket:
    """The ticket of a decision that is retried if it fails."""

    __slots__ = ("_failed",)

    def __init__(self, failed: Callable[[ApiError], None]) -> None:
        self._failed = failed

    def answer(self, response: Any, /) -> None:
        """Do nothing: the decision is committed."""

    def fail(self, error: ApiError, /) -> None:
        self._failed(error)


def _request_of(
    batches: Sequence[_MarkerBatch],
) -> tuple[WriteTxnMarkersRequest, list[_MarkerBatch], list[_MarkerBatch]]:
    """Build one request with at most one marker for each producer: responses identify markers by producer id."""
    taken: dict[int, _MarkerBatch] = {}
    deferred = []
    for ending, partitions in batches:
        same_producer = taken.get(ending.marker.producer_id)
        if same_producer is None:
            taken[ending.marker.producer_id] = ending, list(partitions)
        elif same_producer[0] is ending:
            same_producer[1].extend(partitions)
        else:
            deferred.append((ending, partitions))
    markers = [_writable(ending.marker, partitions) for ending, partitions in taken.values()]
    return WriteTxnMarkersRequest(markers=markers), list(taken.values()), deferred


def _writable(marker: Marker, partitions: Collection[TopicPartition]) -> WritableTxnMarker:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.is_commit,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=numbers) for name, numbers in topics.items()],
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )


def _codes_of(answer: WriteTxnMarkersResponse) -> dict[int, ErrorCodes]:
    codes: dict[int, ErrorCodes] = {}
    for marker in answer.markers:
        of_producer = codes.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for partition in topic.partitions:
                of_producer[TopicPartition(topic.name, partition.partition_index)] = partition.error_code
    return codes
