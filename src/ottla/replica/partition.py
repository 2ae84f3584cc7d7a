"""One partition as this broker holds it: as its leader, or as a follower.

A leader appends, and lets consumers see what all in-sync replicas have: the high watermark. It is the least log end of
the in-sync replicas, and of those that were proposed to become so: they count from the moment of the proposal, because
the controller may have accepted it already. The controller alone changes who is in sync; a leader proposes.

Everything runs in the event loop's thread, so that a check and what follows from it are one step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.errors import (
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    OffsetNotAvailable,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from ottla.image.values import Partition as Assignment
from ottla.log.partition_log import Appended, Isolation, PartitionLog
from ottla.log.producers import Origin
from ottla.log.reading import Fetched, read
from ottla.log.truncation import advance_log_start
from ottla.log.validate import Data
from ottla.replica.waiting import Completions, WaitingList

NO_EPOCH = -1
NO_OFFSET = -1


class Follower:
    """What the leader knows of one of its followers."""

    __slots__ = ("broker_epoch", "caught_up_ms", "fetched_end", "fetched_ms", "log_end_offset", "log_start_offset")

    def __init__(self) -> None:
        self.log_end_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.broker_epoch = NO_EPOCH
        self.caught_up_ms = 0
        """When it last had everything that the leader had at the time of its fetch before."""
        self.fetched_ms = 0
        self.fetched_end = NO_OFFSET
        """The leader's log end at its last fetch."""


class Diverging(NamedTuple):
    """Where a follower's log and this one part: the largest common epoch and its end here."""

    epoch: int
    end_offset: int


class Partition:
    """The replica of a partition on this broker."""

    __slots__ = (
        "assignment",
        "broker_id",
        "completions",
        "epoch_start_offset",
        "followers",
        "future",
        "index",
        "is_leader",
        "leader_epoch",
        "log",
        "proposed_isr",
        "topic",
        "topic_id",
        "waiting_deletes",
        "waiting_fetches",
        "waiting_produces",
    )

    def __init__(
        self,
        broker_id: int,
        topic: str,
        topic_id: bytes,
        index: int,
        log: PartitionLog,
        assignment: Assignment,
        completions: Completions,
    ) -> None:
        self.broker_id = broker_id
        self.completions = completions
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.future: PartitionLog | None = None
        """In another directory, where the partition is being moved to."""
        self.assignment = assignment
        """What the controller last said."""
        self.is_leader = False
        self.leader_epoch = NO_EPOCH
        self.epoch_start_offset = NO_OFFSET
        """The log's end when this leader began: below it are promises of its predecessors."""
        self.followers: dict[int, Follower] = {}
        self.proposed_isr: tuple[int, ...] | None = None
        """Sent to the controller and not answered yet."""
        self.waiting_produces = WaitingList()
        self.waiting_fetches = WaitingList()
        self.waiting_deletes = WaitingList()

    def __repr__(self) -> str:
        return f"Partition({self.topic}-{self.index}, epoch {self.leader_epoch}{', leader' if self.is_leader else ''})"

    @property
    def isr(self) -> tuple[int, ...]:
        """The replicas that the controller holds to be in sync."""
        return self.assignment.isr

    def lead(self, assignment: Assignment, now_ms: int) -> None:
        """Become the leader, or go on as one with other replicas."""
        is_new_term = not self.is_leader or assignment.leader_epoch != self.leader_epoch
        self.assignment = assignment
        self.proposed_isr = None
        others = [replica for replica in assignment.replicas if replica != self.broker_id]
        if is_new_term:
            self.is_leader = True
            self.leader_epoch = assignment.leader_epoch
            self.epoch_start_offset = self.log.log_end_offset
            self.log.epochs.assign(assignment.leader_epoch, self.log.log_end_offset)
            self.followers = {replica: Follower() for replica in others}
            for follower in self.followers.values():
                follower.caught_up_ms = now_ms  # none is late before it had time to fetch
        else:
            self.followers = {replica: self.followers.get(replica) or Follower() for replica in others}
        self._advance()
        self.wake_all()

    def follow(self, assignment: Assignment) -> None:
        """Become a follower, or follow another leader."""
        self.assignment = assignment
        self.proposed_isr = None
        self.is_leader = False
        self.leader_epoch = assignment.leader_epoch
        self.epoch_start_offset = NO_OFFSET
        self.followers = {}
        self.wake_all()

    def check_epoch(self, leader_epoch: int) -> None:
        """Raise unless the client's idea of the leader epoch is this one; -1 is no idea."""
        if leader_epoch in (NO_EPOCH, self.leader_epoch):
            return
        if leader_epoch < self.leader_epoch:
            raise FencedLeaderEpoch(f"{self} was asked with epoch {leader_epoch}")
        raise UnknownLeaderEpoch(f"{self} was asked with epoch {leader_epoch}")

    def check_leader(self, leader_epoch: int = NO_EPOCH) -> None:
        """Raise unless this broker leads the partition at the epoch."""
        self.check_epoch(leader_epoch)
        if not self.is_leader:
            raise NotLeader(f"{self} is not the leader")

    def append(
        self, data: Data, *, acks: int, now_ms: int, origin: Origin = Origin.CLIENT, prepared: bool = False
    ) -> Appended:
        """Append a batch as the leader; consumers see it when the in-sync replicas have it."""
        if not self.is_leader:
            raise NotLeader(f"{self} is not the leader")
        if acks == -1 and len(self.assignment.isr) < self.log.settings.min_insync_replicas:
            raise NotEnoughReplicas(
                f"{self.topic}-{self.index} has {len(self.assignment.isr)} replicas in sync, "
                f"{self.log.settings.min_insync_replicas} are needed"
            )
        appended = self.log.append(
            data, leader_epoch=self.leader_epoch, now_ms=now_ms, origin=origin, prepared=prepared
        )
        if not appended.duplicate:
            self.on_appended()
        return appended

    def on_appended(self) -> None:
        """The log has grown: the high watermark may rise, and followers may fetch."""
        if not self._advance():
            self.completions.add(self.waiting_fetches)

    def has_replicated(self, offset: int) -> bool:
        """Whether a produce that waits for all can be answered; raises if it cannot be promised any more."""
        self.check_leader()
        if self.log.high_watermark < offset:
            return False
        needed = self.log.settings.min_insync_replicas
        if len(self.assignment.isr) < needed:
            raise NotEnoughReplicasAfterAppend(f"{self.topic}-{self.index} has less than {needed} replicas in sync")
        return True

    def read(
        self,
        offset: int,
        max_bytes: int,
        isolation: Isolation,
        *,
        leader_epoch: int = NO_EPOCH,
        last_fetched_epoch: int = NO_EPOCH,
        from_leader_only: bool = True,
        whole_first: bool = True,
    ) -> Fetched | Diverging:
        """Read for a consumer or a follower; Diverging if its log is not a prefix of this one."""
        if from_leader_only:
            self.check_leader(leader_epoch)
        else:
            self.check_epoch(leader_epoch)
        log = self.log
        if last_fetched_epoch >= 0:
            epoch, end_offset = log.epochs.end_offset_for(last_fetched_epoch, log.log_end_offset)
            if epoch < 0 or end_offset < 0:
                raise OffsetOutOfRange(
                    f"{self} knows no epoch {last_fetched_epoch}, which was fetched up to offset {offset}"
                )
            if epoch < last_fetched_epoch or end_offset < offset:
                return Diverging(epoch, end_offset)
        return read(log, offset, max_bytes, isolation, whole_first=whole_first)

    def on_follower_fetch(self, replica: int, offset: int, log_start_offset: int, now_ms: int) -> None:
        """A follower asks for an offset, and so has everything before it."""
        follower = self.followers.get(replica)
        if follower is None:
            raise NotLeader(f"{self} has no replica on broker {replica}")
        end = self.log.log_end_offset
        if offset >= end:
            follower.caught_up_ms = now_ms
        elif offset >= follower.fetched_end >= 0:
            follower.caught_up_ms = follower.fetched_ms
        follower.fetched_ms, follower.fetched_end = now_ms, end
        start_moved = follower.log_start_offset != log_start_offset
        follower.log_end_offset, follower.log_start_offset = offset, log_start_offset
        self._advance()
        if start_moved:
            self.completions.add(self.waiting_deletes)

    def low_watermark(self, is_alive: Callable[[int], bool]) -> int:
        """Where the logs of all replicas begin whose brokers are alive, at the least: what DeleteRecords waits for."""
        starts = [follower.log_start_offset for broker, follower in self.followers.items() if is_alive(broker)]
        if self.future is not None:
            starts.append(self.future.log_start_offset)
        return min([self.log.log_start_offset, *starts])

    def delete_records(self, offset: int) -> int:
        """Let the log begin at an offset, -1 for the high watermark; returns where it begins."""
        self.check_leader()
        target = self.log.high_watermark if offset == -1 else offset
        if target < 0 or target > self.log.high_watermark:
            raise OffsetOutOfRange(f"offset {offset} lies beyond the high watermark {self.log.high_watermark}")
        advance_log_start(self.log, target)
        return target

    def check_readable(self, isolation: Isolation) -> None:
        """Raise if a new leader cannot yet tell where its predecessors' promises end."""
        if isolation is not Isolation.LOG_END and self.log.high_watermark < self.epoch_start_offset:
            raise OffsetNotAvailable(f"{self} has not caught up with its high watermark since it began to lead")

    def _advance(self) -> bool:
        """Raise the high watermark to what all in-sync replicas have; whether it rose."""
        log = self.log
        end = log.log_end_offset
        if self.followers:
            counted = self.proposed_isr or self.assignment.isr
            for replica in counted:
                if replica != self.broker_id:
                    end = min(end, self.followers[replica].log_end_offset)
        if not log.advance_high_watermark(end):
            return False
        self.completions.add(self.waiting_produces)
        self.completions.add(self.waiting_fetches)
        return True

    def wake_all(self) -> None:
        """Let everyone look again who waits for something of this partition."""
        for waiting in (self.waiting_produces, self.waiting_fetches, self.waiting_deletes):
            self.completions.add(waiting)
