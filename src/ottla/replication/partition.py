"""One partition as this broker holds it: as its leader, or as a follower.

A leader appends, and lets consumers see what all in-sync replicas have: the high watermark. It is the least log end of
the in-sync replicas, and of those that were proposed to become so: they count from the moment of the proposal, because
the controller may have accepted it already. Followers that have all but caught up hold it back too, so that they can
join; and with too few replicas in sync it does not rise at all (KIP-966).

Everything runs in the event loop's thread, so that a check and what follows from it are one step.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from ottla.metadata.image.values import Partition as Assignment
from ottla.protocol.errors import (
    ApiError,
    FencedLeaderEpoch,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    OffsetNotAvailable,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from ottla.protocol.messages.rpc.alter_partition import ResponsePartitionData
from ottla.replication.fetch_watches import Watch
from ottla.replication.followers import NO_OFFSET, Follower
from ottla.replication.in_sync import InSyncRules, Proposal, is_outdated, is_refused
from ottla.replication.purgatory import Completions, WaitingList
from ottla.storage.log.partition_log import Appended, Isolation, PartitionLog
from ottla.storage.log.producers import Origin
from ottla.storage.log.reading import Fetched, read
from ottla.storage.log.truncation import advance_log_start
from ottla.storage.log.validation import Data
from ottla.storage.state_machine.entries import Marker

NO_EPOCH = -1

logger = logging.getLogger(__name__)


class Diverging(NamedTuple):
    """Where a follower's log and this one part: the largest common epoch and its end here."""

    epoch: int
    end_offset: int


class Partition:
    """The replica of a partition on this broker."""

    __slots__ = (
        "_waiting_deletes",
        "assignment",
        "broker_id",
        "completions",
        "consumer_watches",
        "epoch_start_offset",
        "follower_watches",
        "followers",
        "future",
        "index",
        "is_leader",
        "leader_epoch",
        "log",
        "on_start_moved",
        "proposal",
        "rules",
        "topic",
        "topic_id",
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
        rules: InSyncRules,
    ) -> None:
        self.broker_id = broker_id
        self.completions = completions
        self.rules = rules
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.take_log(log)
        self.future: PartitionLog | None = None
        """In another directory, where the partition is being moved to."""
        self.assignment = assignment
        """What the controller last said, in the metadata or in answer to a proposal."""
        self.is_leader = False
        self.leader_epoch = NO_EPOCH
        self.epoch_start_offset = NO_OFFSET
        """The log's end when this leader began: below it are promises of its predecessors."""
        self.followers: dict[int, Follower] = {}
        self.proposal: Proposal | None = None
        """Sent to the controller and not settled yet."""
        self.waiting_produces = WaitingList()
        self._waiting_deletes: WaitingList | None = None
        self.consumer_watches: dict[Watch, None] = {}
        """Consumers and share groups, for the high watermark."""
        self.follower_watches: dict[Watch, None] = {}
        """Fetches of followers, for the log's end."""
        self.on_start_moved: Callable[[Partition], None] | None = None
        """Called by a follower when its log begins later, for its leader is to know that."""

    def __repr__(self) -> str:
        return f"Partition({self.topic}-{self.index}, epoch {self.leader_epoch}{', leader' if self.is_leader else ''})"

    @property
    def isr(self) -> tuple[int, ...]:
        """The replicas that the controller holds to be in sync."""
        return self.assignment.isr

    def take_log(self, log: PartitionLog) -> None:
        """Use a log from now on."""
        self.log = log
        log.on_start_moved = self._log_start_moved

    def lead(self, assignment: Assignment, now_ms: int) -> bool:
        """Become the leader, or stay the leader with other replicas. Return False if the assignment is outdated."""
        is_new_leader = not self.is_leader
        is_new_term = is_new_leader or assignment.leader_epoch > self.leader_epoch
        if self._is_outdated(assignment):
            # The answer to a proposal may be ahead of the metadata, but only within the leader's term.
            return not is_new_leader and assignment.leader_epoch == self.leader_epoch
        if is_new_term or assignment.partition_epoch > self.assignment.partition_epoch:
            self.proposal = None
        self.assignment = assignment
        others = [replica for replica in assignment.replicas if replica != self.broker_id]
        self.followers = {replica: self.followers.get(replica) or Follower(replica) for replica in others}
        if is_new_term:
            self.is_leader = True
            self.leader_epoch = assignment.leader_epoch
            end = self.epoch_start_offset = self.log.log_end_offset
            self.log.epochs.assign(assignment.leader_epoch, end)
            for follower in self.followers.values():
                in_sync = follower.broker in assignment.isr
                follower.begin(in_sync=in_sync, is_new_leader=is_new_leader, leader_end=end, now_ms=now_ms)
        self._advance_high_watermark()
        self.wake_all()
        return True

    def follow(self, assignment: Assignment) -> bool:
        """Become a follower, or follow another leader. Return False if the assignment is outdated."""
        if self._is_outdated(assignment):
            return False
        self.assignment = assignment
        self.proposal = None
        self.is_leader = False
        self.leader_epoch = assignment.leader_epoch
        self.epoch_start_offset = NO_OFFSET
        self.followers = {}
        self.wake_all()
        return True

    def _is_outdated(self, assignment: Assignment) -> bool:
        """Whether an assignment is older than the one in force: leader epochs rise, and within one partition epochs."""
        if assignment.leader_epoch != self.leader_epoch:
            return assignment.leader_epoch < self.leader_epoch
        return assignment.partition_epoch < self.assignment.partition_epoch

    def check_epoch(self, leader_epoch: int) -> None:
        """Raise unless the client's leader epoch is this one, or NO_EPOCH. Other negative epochs are outdated."""
        if leader_epoch == self.leader_epoch or leader_epoch == NO_EPOCH:
            return
        if leader_epoch < self.leader_epoch:
            raise FencedLeaderEpoch(f"{self} was asked with epoch {leader_epoch}")
        raise UnknownLeaderEpoch(f"{self} was asked with epoch {leader_epoch}")

    def check_leader(self, leader_epoch: int = NO_EPOCH) -> None:
        """Raise unless this broker leads the partition at the epoch."""
        if leader_epoch != self.leader_epoch and leader_epoch != NO_EPOCH:
            self.check_epoch(leader_epoch)
        if not self.is_leader:
            raise NotLeader(f"{self} is not the leader")

    def append(
        self, data: Data, *, acks: int, now_ms: int, origin: Origin = Origin.CLIENT, is_validated: bool = False
    ) -> Appended:
        """Append a batch as the leader; consumers see it when the in-sync replicas have it."""
        self._check_appendable(acks)
        appended = self.log.append(
            data, leader_epoch=self.leader_epoch, now_ms=now_ms, origin=origin, is_validated=is_validated
        )
        if not appended.duplicate:
            self.on_appended()
        return appended

    def append_unless_heavy(self, data: Data, acks: int, now_ms: int) -> Appended:
        """Append a producer's batch, in fewer steps; TooHeavy if it would hold up an event loop."""
        if not self.is_leader or acks == -1:
            self._check_appendable(acks)
        appended = self.log.append_unless_heavy(data, self.leader_epoch, now_ms)
        if not appended.duplicate:
            self.on_appended()
        return appended

    def _check_appendable(self, acks: int) -> None:
        """Raise unless a batch may be appended here, and as many replicas are in sync as a producer asks for."""
        if not self.is_leader:
            raise NotLeader(f"{self} is not the leader")
        if acks == -1 and self.is_under_min_isr:
            raise NotEnoughReplicas(
                f"{self.topic}-{self.index} has {len(self.assignment.isr)} replicas in sync, "
                f"{self.log.settings.min_insync_replicas} are needed"
            )

    def append_marker(self, marker: Marker, now_ms: int) -> Appended:
        """End a producer's transaction here, as the leader."""
        self.check_leader()
        appended = self.log.append_marker(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            commit=marker.is_commit,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
        )
        self.on_appended()
        return appended

    def on_appended(self) -> None:
        """The log has grown: the high watermark may rise, and followers may fetch."""
        if self.follower_watches:
            for watch in self.follower_watches:
                if not watch.is_changed and (follower := self.followers.get(watch.watch_set.replica)) is not None:
                    # Fetches of its session did not look here, for the follower had everything until now.
                    follower.on_caught_up(watch.watch_set.used_ms)
                watch.wake(self.completions)
        self._advance_high_watermark()

    def has_replicated(self, offset: int) -> bool:
        """Whether a produce that waits for all can be answered; raises if it cannot be promised any more."""
        self.check_leader()
        if self.log.high_watermark < offset:
            return False
        needed = min(self.log.settings.min_insync_replicas, len(self.assignment.replicas))
        if len(self.maximal_isr) < needed:
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
        """Read for a consumer or a follower; Diverging if its log is not a prefix of this one. A negative leader epoch
        is none: so Fetch takes it, unlike ListOffsets and OffsetForLeaderEpoch."""
        if leader_epoch >= 0 and leader_epoch != self.leader_epoch:
            self.check_epoch(leader_epoch)
        if from_leader_only and not self.is_leader:
            raise NotLeader(f"{self} is not the leader")
        log = self.log
        if last_fetched_epoch >= 0:
            epoch, end_offset = log.epochs.end_offset_for(last_fetched_epoch, log.log_end_offset)
            if epoch < 0 or end_offset < 0:
                raise OffsetOutOfRange(
                    f"{self} knows no epoch {last_fetched_epoch}, which was fetched up to offset {offset}"
                )
            if offset < log.log_start_offset:
                raise OffsetOutOfRange(f"{self} begins at {log.log_start_offset}, and {offset} was asked for")
            if epoch < last_fetched_epoch or end_offset < offset:
                return Diverging(epoch, end_offset)
        return read(log, offset, max_bytes, isolation, whole_first=whole_first)

    def read_for_follower(
        self,
        replica: int,
        offset: int,
        max_bytes: int,
        *,
        leader_epoch: int,
        last_fetched_epoch: int,
        whole_first: bool,
    ) -> Fetched | Diverging:
        """Read for a follower; what it tells of itself is another step."""
        self.check_leader(leader_epoch if leader_epoch >= 0 else NO_EPOCH)
        if replica not in self.followers:
            # Its metadata may be ahead of this leader's: with an epoch it can tell, and tries again.
            why = f"{self} has no replica on broker {replica}"
            raise NotLeader(why) if leader_epoch < 0 else UnknownLeaderEpoch(why)
        return self.read(
            offset,
            max_bytes,
            Isolation.LOG_END,
            last_fetched_epoch=last_fetched_epoch,
            whole_first=whole_first,
        )

    def on_follower_fetch(
        self, replica: int, offset: int, log_start_offset: int, now_ms: int, *, broker_epoch: int = -1
    ) -> None:
        """A follower asks for an offset, and so has everything before it. Told once for each of its requests."""
        follower = self.followers.get(replica)
        if follower is None:
            raise NotLeader(f"{self} has no replica on broker {replica}")
        if self.rules.is_stale(replica, broker_epoch):
            raise NotLeader(f"{self} was fetched by broker {replica} in an earlier life, of epoch {broker_epoch}")
        old_end, old_start = follower.log_end_offset, follower.log_start_offset
        follower.fetched(
            offset, log_start_offset, leader_end=self.log.log_end_offset, broker_epoch=broker_epoch, now_ms=now_ms
        )
        self.maybe_expand(replica)
        if offset != old_end:
            self._advance_high_watermark()
        if log_start_offset != old_start:
            self.wake_deletes()

    # -- who is in sync --

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The replicas that must have a batch before it is committed: those in sync, and those proposed to be."""
        proposal = self.proposal
        if proposal is None:
            return self.assignment.isr
        return tuple({*self.assignment.isr, *proposal.isr})

    @property
    def is_under_min_isr(self) -> bool:
        """Whether fewer replicas are in sync than `min.insync.replicas`, or than all if there are not even so many."""
        in_sync = len(self.assignment.isr)
        return in_sync < self.log.settings.min_insync_replicas and in_sync < len(self.assignment.replicas)

    def maybe_expand(self, replica: int) -> None:
        """Propose a follower for the ISR if it has caught up."""
        if self.proposal is not None or replica in self.assignment.isr:
            return
        follower = self.followers[replica]
        end = follower.log_end_offset
        if end < self.log.high_watermark or end < self.epoch_start_offset:
            return
        if self.rules.is_eligible(replica, follower.broker_epoch):
            self._propose((*self.assignment.isr, replica))

    def maybe_shrink(self, now_ms: int) -> None:
        """Propose an ISR without those that lag behind for too long."""
        if not self.is_leader or self.proposal is not None or len(self.assignment.isr) < 2:
            return
        end, max_lag_ms = self.log.log_end_offset, self.rules.max_lag_ms
        late = [
            replica
            for replica in self.assignment.isr
            if replica != self.broker_id and not self.followers[replica].is_caught_up(end, now_ms, max_lag_ms)
        ]
        if late:
            logger.info("%s: brokers %s are not in sync with offset %d any more", self, late, end)
            self._propose(tuple(replica for replica in self.assignment.isr if replica not in late))

    def on_isr_decided(self, proposal: Proposal, answer: ResponsePartitionData) -> None:
        """The controller took a proposal, unless this partition has gone on since."""
        if self.proposal is not proposal or answer.leader_epoch != self.leader_epoch:
            return
        if answer.partition_epoch >= self.assignment.partition_epoch:
            self.proposal = None
            self.assignment = self.assignment._replace(
                isr=tuple(answer.isr),
                partition_epoch=answer.partition_epoch,
                leader_recovery=answer.leader_recovery_state,
            )
            logger.info("%s: in sync are now %s", self, answer.isr)
            self._advance_high_watermark()

    def on_isr_refused(self, proposal: Proposal, error: ApiError) -> bool:
        """The controller did not take a proposal; whether it is to be asked again."""
        if self.proposal is not proposal or is_outdated(error):
            return False
        if is_refused(error):
            self.proposal = None
            return False
        return True

    def _propose(self, isr: tuple[int, ...]) -> None:
        if self.rules.propose is not None:
            self.proposal = Proposal(isr, self.leader_epoch, self.assignment.partition_epoch)
            self.rules.propose(self, self.proposal)

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

    def _advance_high_watermark(self) -> None:
        """Raise the high watermark to what all in-sync replicas have."""
        log = self.log
        if not log.advance_high_watermark(self._replicated_end() if self.followers else log.log_end_offset):
            return
        if self.waiting_produces.operations:
            self.completions.add(self.waiting_produces)
        for watch in self.consumer_watches:
            watch.wake(self.completions)
        for watch in self.follower_watches:
            watch.hurry()

    def _replicated_end(self) -> int:
        """The end of what all have who count; -1 where nothing may be committed."""
        if self.is_under_min_isr:
            return NO_OFFSET
        leader_end = end = self.log.log_end_offset
        maximal_isr = self.maximal_isr
        for replica, follower in self.followers.items():
            if follower.log_end_offset < end and (replica in maximal_isr or self._is_joining(follower, leader_end)):
                end = follower.log_end_offset
        return end

    def _is_joining(self, follower: Follower, leader_end: int) -> bool:
        """Whether a follower is so close that it is waited for: else the high watermark would always be ahead of it."""
        rules = self.rules
        return follower.is_caught_up(leader_end, rules.now_ms(), rules.max_lag_ms) and rules.is_eligible(
            follower.broker, follower.broker_epoch
        )

    def wake_consumers(self) -> None:
        """Have consumers look again, for the high watermark of this follower has risen."""
        for watch in self.consumer_watches:
            watch.wake(self.completions)

    def mark_watches(self) -> None:
        """Have all readers look at the partition with their next fetch."""
        for watches in (self.consumer_watches, self.follower_watches):
            for watch in watches:
                watch.mark()

    def _log_start_moved(self) -> None:
        self.mark_watches()
        if self.on_start_moved is not None:
            self.on_start_moved(self)

    def wake_all(self) -> None:
        """Let all requests that wait for this partition look again."""
        if self.waiting_produces.operations:
            self.completions.add(self.waiting_produces)
        self.wake_deletes()
        for watches in (self.consumer_watches, self.follower_watches):
            for watch in watches:
                watch.wake(self.completions)

    @property
    def waiting_deletes(self) -> WaitingList:
        """The requests that wait for replicas to delete records; most partitions never have one."""
        if self._waiting_deletes is None:
            self._waiting_deletes = WaitingList()
        return self._waiting_deletes

    def wake_deletes(self) -> None:
        """Let the requests that wait for replicas to delete records look again."""
        if self._waiting_deletes is not None and self._waiting_deletes.operations:
            self.completions.add(self._waiting_deletes)

    def end_watches(self) -> None:
        """The partition leaves this broker: readers look for it elsewhere, or find that it is gone."""
        for watches in (self.consumer_watches, self.follower_watches):
            for watch in watches:
                watch.lose_partition()
            watches.clear()
