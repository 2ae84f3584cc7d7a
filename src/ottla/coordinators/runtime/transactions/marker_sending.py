"""A transaction whose end is decided: its partitions are told, wherever their leaders are, until each has its marker.

Leaders move and brokers fail, so each partition is tried again until its leader has answered for it; a partition that
was deleted needs no marker. When all are done the transaction is complete. A coordinator that is deposed meanwhile
stops: the next one finds the decision in the log and begins anew, and leaders take a marker that they have already.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from ottla.coordinators.runtime.broker_links import Batched, BrokerLinks
from ottla.coordinators.runtime.shard import Shard
from ottla.coordinators.runtime.shards import Shards
from ottla.coordinators.runtime.transactions.marker_writing import Codes, MarkerWriter
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


class _Sending:
    """A transaction some of whose partitions have no marker yet."""

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


_Parcel = tuple[_Sending, list[TopicPartition]]


class MarkerSender:
    """Tells partitions how transactions ended."""

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
        self._remote: Batched[_Parcel] = Batched(links, runtime.spawn, request=_request_of, answered=self._answered)
        self.shards: Shards[TransactionsState] | None = None
        """The transaction coordinators of this broker; put in once they are made."""
        self.under_way = 0
        """Transactions that wait for markers."""

    def ticket(self, transaction: Transaction) -> Ticket:
        """What a decision answers when it is committed that a transaction ends."""
        return _Decided(self, transaction.transactional_id)

    def begin(self, transaction: Transaction) -> None:
        """Tell all partitions of a transaction."""
        shard = self._shard(transaction.transactional_id)
        if shard is not None:
            sending = _Sending(shard, transaction)
            self.under_way += 1
            self._send(sending, sending.open)

    def look_again(self, transactional_id: str, error: ApiError) -> None:
        """It is not known whether a decision will be committed."""
        if not isinstance(error, NotCoordinator):
            self._later(_RETRY_MAX_S, lambda: self._resume(transactional_id))

    def _resume(self, transactional_id: str) -> None:
        shard = self._shard(transactional_id)
        if shard is not None:
            ticket = _Retrying(lambda error: self.look_again(transactional_id, error))
            shard.submit(
                "ResumeTransaction", lambda state: resume_ending(state, self._context(), transactional_id), ticket
            )

    def _shard(self, transactional_id: str) -> Shard[TransactionsState] | None:
        """The coordinator, if it is still here."""
        assert self.shards is not None
        try:
            shard = self.shards.of(transactional_id)
        except NotCoordinator:
            return None
        return shard if shard.is_active else None

    # -- sending --

    def _send(self, sending: _Sending, where: Collection[TopicPartition]) -> None:
        image, by_leader = self._image(), dict[int, list[TopicPartition]]()
        for each in list(where):
            partition = image.partition(each.topic, each.partition)
            if partition is None:
                logger.info("%s needs no marker any more, for it was deleted", each)
                sending.open.discard(each)
            else:
                by_leader.setdefault(partition.leader, []).append(each)
        for leader, partitions in by_leader.items():
            if leader == self._node_id:
                self._writer.write(sending.marker, partitions, lambda codes: self._settle(sending, codes))
            elif leader == _NO_LEADER:
                self._retry(sending, partitions)
            else:
                self._remote.post(leader, (sending, partitions))
        if not by_leader:
            self._settle(sending, {})

    def _answered(self, parcels: Sequence[_Parcel], answer: Any) -> None:
        if isinstance(answer, ApiError):
            logger.info("markers could not be sent: %s", answer)
            for sending, partitions in parcels:
                self._retry(sending, partitions)
            return
        codes = _codes_of(answer)
        for sending, partitions in parcels:
            found = codes.get(sending.marker.producer_id, {})
            self._settle(sending, {each: found[each] for each in partitions if each in found})
            if missing := [each for each in partitions if each not in found]:
                self._retry(sending, missing)
        self._completions.run()

    def _settle(self, sending: _Sending, codes: Codes) -> None:
        again = []
        for where, code in codes.items():
            if code in _NO_MARKER_NEEDED:
                sending.open.discard(where)
            elif code in _OUTDATED:
                logger.warning("%s refused the marker of %s: %s", where, sending.transaction, name_of(code))
                self._stop(sending)
                return
            else:
                logger.info("%s has no marker of %s yet: %s", where, sending.transaction, name_of(code))
                again.append(where)
        if again:
            self._retry(sending, again)
        elif not sending.open and not sending.is_cancelled:
            self._stop(sending)
            self._complete(sending)

    def _retry(self, sending: _Sending, where: Collection[TopicPartition]) -> None:
        delay_s, sending.retry_s = sending.retry_s, min(2 * sending.retry_s, _RETRY_MAX_S)

        def again() -> None:
            if sending.is_cancelled:
                return
            if self._shard(sending.transaction.transactional_id) is not sending.shard:
                self._stop(sending)
                return
            self._send(sending, where)

        self._later(delay_s, again)

    def _stop(self, sending: _Sending) -> None:
        if not sending.is_cancelled:
            sending.is_cancelled = True
            self.under_way -= 1

    def _complete(self, sending: _Sending) -> None:
        if not sending.shard.is_active:
            return

        def failed(error: ApiError) -> None:
            if not isinstance(error, NotCoordinator):
                self._later(_RETRY_MAX_S, lambda: self._complete(sending))

        sending.shard.submit(
            "CompleteTransaction",
            lambda state: complete_transaction(state, self._context(), sending.transaction),
            _Retrying(failed),
        )

    def _later(self, delay_s: float, act: Callable[[], None]) -> None:
        def run() -> None:
            act()
            self._completions.run()

        self._loop.call_later(delay_s, run)


class _Decided:
    """Waits for the decision that a transaction ends to be committed."""

    __slots__ = ("_sender", "_transactional_id")

    def __init__(self, sender: MarkerSender, transactional_id: str) -> None:
        self._sender = sender
        self._transactional_id = transactional_id

    def answer(self, response: Transaction, /) -> None:
        self._sender.begin(response)

    def fail(self, error: ApiError, /) -> None:
        self._sender.look_again(self._transactional_id, error)


class _Retrying:
    """Waits for something that is done again if it fails."""

    __slots__ = ("_failed",)

    def __init__(self, failed: Callable[[ApiError], None]) -> None:
        self._failed = failed

    def answer(self, response: Any, /) -> None:
        """It is done."""

    def fail(self, error: ApiError, /) -> None:
        self._failed(error)


def _request_of(parcels: Sequence[_Parcel]) -> tuple[WriteTxnMarkersRequest, list[_Parcel], list[_Parcel]]:
    """One request with all that waits, but for a second marker of a producer: answers tell them apart by its id."""
    taken: dict[int, _Parcel] = {}
    left = []
    for sending, partitions in parcels:
        known = taken.get(sending.marker.producer_id)
        if known is None:
            taken[sending.marker.producer_id] = sending, list(partitions)
        elif known[0] is sending:
            known[1].extend(partitions)
        else:
            left.append((sending, partitions))
    markers = [_writable(sending.marker, partitions) for sending, partitions in taken.values()]
    return WriteTxnMarkersRequest(markers=markers), list(taken.values()), left


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


def _codes_of(answer: WriteTxnMarkersResponse) -> dict[int, Codes]:
    codes: dict[int, Codes] = {}
    for marker in answer.markers:
        of_producer = codes.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for each in topic.partitions:
                of_producer[TopicPartition(topic.name, each.partition_index)] = each.error_code
    return codes
