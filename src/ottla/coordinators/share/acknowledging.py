"""Acknowledgement of acquired records: accept, release, reject or renew."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from ottla.coordinators.share.delivery import NO_MEMBER, Delivery, InFlightBatch, RecordState
from ottla.coordinators.share.partition import ShareLimits, SharePartition, StateChange
from ottla.protocol.errors import ApiError, InvalidRecordState, InvalidRequest


class AcknowledgeType(IntEnum):
    """The type of an acknowledgement, by Kafka's numbers."""

    GAP = 0
    """There is no record at the offset: it was compacted away, or is a control record."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    """Extend the acquisition lock (KIP-1222)."""


_STATES: Final = {
    AcknowledgeType.GAP: RecordState.ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: RecordState.AVAILABLE,
    AcknowledgeType.REJECT: RecordState.ARCHIVED,
}
_NOT_ACQUIRED: Final = "The batch cannot be acknowledged. The batch is not in the acquired state."
_CHANGING: Final = "The record state is invalid. The acknowledgement of delivery could not be completed."


class AcknowledgementBatch(NamedTuple):
    """The acknowledgement of an offset range: one type for all records, or one for each."""

    first: int
    last: int
    types: Sequence[int]

    def type_of(self, offset: int) -> AcknowledgeType:
        return AcknowledgeType(self.types[0] if len(self.types) == 1 else self.types[offset - self.first])


def check_acks(acks: Iterable[AcknowledgementBatch], *, knows_renewal: bool, is_renewal: bool) -> None:
    """Raise InvalidRequest unless the batches are well formed and in order."""
    end = -1
    highest = AcknowledgeType.RENEW if knows_renewal else AcknowledgeType.REJECT
    for first, last, types in acks:
        if (
            first > last
            or first < end
            or not types
            or (len(types) > 1 and last - first != len(types) - 1)
            or not all(0 <= number <= highest for number in types)
            or (AcknowledgeType.RENEW in types and not is_renewal)
        ):
            raise InvalidRequest
        end = last


def acknowledge(
    share: SharePartition, member: str, acks: Iterable[AcknowledgementBatch], limits: ShareLimits, now_ms: int
) -> list[StateChange]:
    """Begin the state changes of a member's acknowledgements: all of them, or raise and change nothing."""
    acknowledgement = _Acknowledgement(share, member, limits, now_ms)
    try:
        for ack in acks:
            acknowledgement.apply(ack)
    except ApiError:
        share.settle(acknowledgement.changes, now_ms, written=False)
        raise
    return acknowledgement.changes


class _Acknowledgement:
    """The acknowledgements of one request."""

    def __init__(self, share: SharePartition, member: str, limits: ShareLimits, now_ms: int) -> None:
        self.share = share
        self.member = member
        self.limits = limits
        self.until_ms = now_ms + limits.lock_ms
        self.changes: list[StateChange] = []

    def apply(self, ack: AcknowledgementBatch) -> None:
        """Apply one acknowledgement batch."""
        if ack.last < self.share.start:
            return  # before the start offset: no effect
        for batch in self._batches(ack):
            if batch.last < self.share.start:
                continue
            if batch.whole is not None:
                self._check(batch.whole, batch)
            fits = batch.first >= ack.first and batch.last <= ack.last
            if batch.whole is None or not fits or len(ack.types) > 1 or self.share.starts_within(batch):
                self._apply_to_records(ack, batch)
            else:
                if batch.whole.state is not RecordState.ACQUIRED:
                    raise InvalidRecordState(_NOT_ACQUIRED)
                self._change(ack.type_of(ack.first), batch.first, batch.last, batch.whole)

    def _batches(self, ack: AcknowledgementBatch) -> list[InFlightBatch]:
        share, in_flight_batches = self.share, self.share.in_flight_batches
        floor = in_flight_batches.floor(ack.first)
        if floor is None and ack.first < share.start <= ack.last:
            floor = in_flight_batches.floor(share.start)
        if floor is None:
            raise InvalidRecordState("Batch record not found. The request batch offsets are not found in the cache.")
        covered = in_flight_batches.beginning_in(floor.first, ack.last)
        if covered[-1].last < ack.first:
            raise InvalidRequest("Batch record not found. The first offset in request is past acquired records.")
        if ack.last > covered[-1].last:
            raise InvalidRequest("Batch record not found. The last offset in request is past acquired records.")
        return covered

    def _check(self, whole: Delivery, batch: InFlightBatch) -> None:
        if whole.member == NO_MEMBER:
            raise InvalidRecordState(_NOT_ACQUIRED)
        if whole.member != self.member:
            raise InvalidRecordState("Member is not the owner of batch record")
        if whole.is_changing:
            raise InvalidRecordState(_CHANGING)

    def _apply_to_records(self, ack: AcknowledgementBatch, batch: InFlightBatch) -> None:
        if batch.whole is not None:
            if batch.whole.state is not RecordState.ACQUIRED:
                raise InvalidRecordState(
                    "The batch cannot be acknowledged. The subset batch is not in the acquired state."
                )
            batch.split()
        for offset, delivery in batch.within(max(ack.first, self.share.start), ack.last):
            if delivery.state is not RecordState.ACQUIRED:
                raise InvalidRecordState("The offset cannot be acknowledged. The offset is not acquired.")
            if delivery.is_changing:
                raise InvalidRecordState(_CHANGING)
            if delivery.member != self.member:
                raise InvalidRecordState("Member is not the owner of offset")
            self._change(ack.type_of(offset), offset, offset, delivery)

    def _change(self, kind: AcknowledgeType, first: int, last: int, delivery: Delivery) -> None:
        if kind is AcknowledgeType.RENEW:
            if not self.limits.may_renew:
                raise InvalidRecordState("Renewing acquisition locks is not enabled for the group.")
            delivery.until_ms = self.until_ms
            return
        delivery.begin(_STATES[kind], self.limits.max_deliveries)
        self.changes.append(self.share.changed(first, last, delivery))
