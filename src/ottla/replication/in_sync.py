"""The rules of the ISR: what a leader proposes to the controller, and what the controller would accept.

A follower joins the ISR when it has everything up to the high watermark and to the start of the leader's epoch, and its
broker is active with the broker epoch with which it fetched (KIP-841, KIP-903). It leaves the ISR when it has not been
caught up for `replica.lag.time.max.ms`. Only the controller decides; until then both old and proposed replicas count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.metadata.image.image import Image
from ottla.protocol.errors import (
    ApiError,
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    NewLeaderElected,
    OperationNotAttempted,
    UnknownTopicId,
    UnknownTopicOrPartition,
)

if TYPE_CHECKING:
    from ottla.replication.partition import Partition

DEFAULT_MAX_LAG_MS = 30_000

_REFUSED = (OperationNotAttempted, IneligibleReplica)
_OUTDATED = (
    UnknownTopicOrPartition,
    UnknownTopicId,
    FencedLeaderEpoch,
    InvalidUpdateVersion,
    InvalidRequest,
    NewLeaderElected,
)


class Proposal:
    """A proposed ISR that the controller has not decided yet. Compared by identity."""

    __slots__ = ("isr", "leader_epoch", "partition_epoch")

    def __init__(self, isr: tuple[int, ...], leader_epoch: int, partition_epoch: int) -> None:
        self.isr = isr
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch

    def __repr__(self) -> str:
        return f"Proposal({list(self.isr)}, leader epoch {self.leader_epoch}, partition epoch {self.partition_epoch})"


class InSyncRules:
    """What the partitions of a broker use to judge their followers."""

    def __init__(
        self,
        *,
        now_ms: Callable[[], int],
        max_lag_ms: int = DEFAULT_MAX_LAG_MS,
        propose: Callable[[Partition, Proposal], None] | None = None,
    ) -> None:
        self.image = Image()
        """The newest metadata image of this broker."""
        self.now_ms = now_ms
        self.max_lag_ms = max_lag_ms
        self.propose = propose
        """Sends a proposal to the controller; None if there is no controller."""

    def is_stale(self, broker_id: int, broker_epoch: int) -> bool:
        """Return whether an active broker fetched with an older broker epoch."""
        broker = self.image.brokers.get(broker_id)
        return broker_epoch != -1 and broker is not None and not broker.fenced and broker.epoch > broker_epoch

    def is_eligible(self, broker_id: int, broker_epoch: int | None) -> bool:
        """Return whether the controller would accept a follower in the ISR, judging by this broker's image."""
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.fenced or broker.in_controlled_shutdown:
            return False
        return broker_epoch is not None and broker_epoch in (-1, broker.epoch)


def is_refused(error: ApiError) -> bool:
    """Return whether the controller rejected a proposal. The next fetch may lead to another one."""
    return isinstance(error, _REFUSED)


def is_outdated(error: ApiError) -> bool:
    """Return whether newer metadata is on its way and replaces the proposal. Other errors are retried."""
    return isinstance(error, _OUTDATED)
