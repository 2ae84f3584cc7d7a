"""Who is in sync with a leader: what is proposed to the controller, and whom it would take.

A follower joins when it has everything up to the high watermark and to the beginning of the leader's term, and its
broker is in service in the life in which it fetched (KIP-841, KIP-903). It leaves when it had not everything for
`replica.lag.time.max.ms`. The controller alone decides; until it has, both the old and the proposed replicas count.
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
    """An ISR that the controller was asked for, and has not answered yet. Known by identity."""

    __slots__ = ("isr", "leader_epoch", "partition_epoch")

    def __init__(self, isr: tuple[int, ...], leader_epoch: int, partition_epoch: int) -> None:
        self.isr = isr
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch

    def __repr__(self) -> str:
        return f"Proposal({list(self.isr)}, leader epoch {self.leader_epoch}, partition epoch {self.partition_epoch})"


class InSyncRules:
    """What the partitions of a broker need to judge their followers."""

    def __init__(
        self,
        *,
        now_ms: Callable[[], int],
        max_lag_ms: int = DEFAULT_MAX_LAG_MS,
        propose: Callable[[Partition, Proposal], None] | None = None,
    ) -> None:
        self.image = Image()
        """The cluster as this broker knows it."""
        self.now_ms = now_ms
        self.max_lag_ms = max_lag_ms
        self.propose = propose
        """Hands a proposal on; None where nobody decides on it."""

    def is_stale(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether a broker that is in service fetched in an earlier life."""
        broker = self.image.brokers.get(broker_id)
        return broker_epoch != -1 and broker is not None and not broker.fenced and broker.epoch > broker_epoch

    def is_eligible(self, broker_id: int, broker_epoch: int | None) -> bool:
        """Whether the controller would take a follower into the ISR, by what is known here of its broker."""
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.fenced or broker.in_controlled_shutdown:
            return False
        return broker_epoch is not None and broker_epoch in (-1, broker.epoch)


def is_refused(error: ApiError) -> bool:
    """Whether things are as they were before the proposal; the next fetch may lead to another one."""
    return isinstance(error, _REFUSED)


def is_outdated(error: ApiError) -> bool:
    """Whether newer metadata are on their way that settle the matter. What else goes wrong is tried again."""
    return isinstance(error, _OUTDATED)
