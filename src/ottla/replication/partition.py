"""One replica of a partition on this broker: the leader, or a follower.

Consumers read up to the leader's high watermark, which all in-sync replicas have reached. It is the smallest log end
offset of the in-sync replicas and of the replicas that were proposed for the ISR. Proposed replicas count from the
proposal on, because the controller may have accepted it already. Followers that have nearly caught up hold it back too,
so that they can join the ISR. With too few replicas in sync it does not rise at all (KIP-966).

Everything runs in the event loop's thread, so that a check and the action after it are one step.
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
    """The point where a follower's log diverges: the largest common epoch and its end offset here."""

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
        """The log in the directory that the replica is being moved to."""
        self.assignment = assignment
        """The newest assignment from the controller, from the metadata or the answer to a proposal."""
        self.is_leader = False
        self.leader_epoch = NO_EPOCH
        self.epoch_start_offset = NO_OFFSET
        """The log end offset when this leader's term began. Earlier leaders may have committed records below it."""
        self.followers: dict[int, Follower] = {}
        self.proposal: Proposal | None = None
        """The ISR change that the controller has not decided yet."""
        self.waiting_produces = WaitingList()
        self._waiting_deletes: WaitingList | None = None
        self.consumer_watches: dict[Watch, None] = {}
        """Watches of consumers and share groups, for the high watermark."""
        self.follower_watches: dict[Watch, None] = {}
        """Watches of followers, for the log end."""
        self.on_start_moved: Callable[[Partition], None] | None = None
        """Called on a follower when its log start rises, to report it to the leader."""

    def __repr__(self) -> str:
        return f"Partition({self.topic}-{self.index}, epoch {self.leader_epoch}{', leader' if self.is_leader else ''})"

    @property
    def isr(self) -> tuple[int, ...]:
        """The in-sync replicas as decided by the controller."""
        return self.assignment.isr

    def take_log(self, log: PartitionLog) -> None:
        """Use another log from now on."""
        self.log = log
        log.on_start_moved = self._log_start_moved

    def lead(self, assignment: Assignment, now_ms: int) -> bool:
        """Become the leader, or stay the leader with other replicas. Return False if the assignment is outdated."""
        is_new_leader = not self.is_leader
        is_new_term = is_new_leader or assignment.leader_epoch > self.leader_epoch
        if self._is_outdated(assignment):
            # The answer to a proposal may be newer than the metadata, but only within the leader's term.
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
        """Return whether an assignment is older than the current one, by leader epoch and then partition epoch."""
        if assignment.leader_epoch != self.leader_epoch:
            return assignment.leader_epoch < self.leader_epoch
        return assignment.partition_epoch < self.assignment.partition_epoch

    def check_epoch(self, leader_epoch: int) -> None:
        """Raise unless the client's leader epoch is the current one, or NO_EPOCH. Other negative epochs are fenced."""
        if leader_epoch == self.leader_epoch or leader_epoch == NO_EPOCH:
            return
        if leader_epoch < self.leader_epoch:
            raise FencedLeaderEpoch(f"{self}: the request has the older leader epoch {leader_epoch}")
        raise UnknownLeaderEpoch(f"{self}: the request has the newer leader epoch {leader_epoch}")

    def check_leader(self, leader_epoch: int = NO_EPOCH) -> None:
        """Raise unless this broker leads the partition at the epoch."""
        if leader_epoch != self.leader_epoch and leader_epoch != NO_EPOCH:
            self.check_epoch(leader_epoch)
        if not self.is_leader:
            raise NotLeader(f"{self} is not the leader")

    def append(
        self, data: Data, *, acks: int, now_ms: int, origin: Origin = Origin.CLIENT, is_validated: bool = False
    ) -> Appended:
        """Append a batch as the leader. Consumers see it once the in-sync replicas have it."""
        self._check_appendable(acks)
        appended = self.log.append(
            data, leader_epoch=self.leader_epoch, now_ms=now_ms, origin=origin, is_validated=is_validated
        )
        if not appended.duplicate:
            self.on_appended()
        return appended

    def append_unless_heavy(self, data: Data, acks: int, now_ms: int) -> Appended:
        """Append a producer's batch like `append`, but raise TooHeavy if validating it would hold up the event loop."""
        if not self.is_leader or acks == -1:
            self._check_appendable(acks)
        appended = self.log.append_unless_heavy(data, self.leader_epoch, now_ms)
        if not appended.duplicate:
            self.on_appended()
        return appended

    def _check_appendable(self, acks: int) -> None:
        """Raise unless this replica is the leader and, for `acks=all`, has enough in-sync replicas."""
        if not self.is_leader:
            raise NotLeader(f"{self} is not the leader")
        if acks == -1 and self.is_under_min_isr:
            raise NotEnoughReplicas(
                f"{self.topic}-{self.index} has {len(self.assignment.isr)} in-sync replicas, "
                f"but min.insync.replicas is {self.log.settings.min_insync_replicas}"
            )

    def append_marker(self, marker: Marker, now_ms: int) -> Appended:
        """Append the end of a producer's transaction as the leader."""
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
        """Wake followers and raise the high watermark after the log has grown."""
        if self.follower_watches:
            for watch in self.follower_watches:
                if not watch.is_changed and (follower := self.followers.get(watch.watch_set.replica)) is not None:
                    # The session's fetches did not read this partition, because the follower had everything.
                    follower.on_caught_up(watch.watch_set.used_ms)
                watch.wake(self.completions)
        self._advance_high_watermark()

    def has_replicated(self, offset: int) -> bool:
        """Return whether an `acks=all` produce is committed. Raise if this broker can no longer guarantee it."""
        self.check_leader()
        if self.log.high_watermark < offset:
            return False
        needed = self.effective_min_isr
        if len(self.maximal_isr) < needed:
            raise NotEnoughReplicasAfterAppend(f"{self.topic}-{self.index} has fewer than {needed} in-sync replicas")
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
        """Read for a consumer or a follower. Return Diverging if its log is not a prefix of this one.

        A negative leader epoch means none, as in Kafka's Fetch, but not in ListOffsets and OffsetForLeaderEpoch.
        """
        if leader_epoch >= 0 and leader_epoch != self.leader_epoch:
            self.check_epoch(leader_epoch)
        if from_leader_only and not self.is_leader:
            raise NotLeader(f"{self} is not the leader")
        log = self.log
        if last_fetched_epoch >= 0:
            epoch, end_offset = log.epochs.end_offset_for(last_fetched_epoch, log.log_end_offset)
            if epoch < 0 or end_offset < 0:
                raise OffsetOutOfRange(
                    f"{self} does not know epoch {last_fetched_epoch}, which was fetched up to offset {offset}"
                )
            if offset < log.log_start_offset:
                raise OffsetOutOfRange(f"{self}: offset {offset} is before the log start, {log.log_start_offset}")
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
        """Read for a follower. `on_follower_fetch` records its progress separately."""
        self.check_leader(leader_epoch if leader_epoch >= 0 else NO_EPOCH)
        if replica not in self.followers:
            # Its metadata may be newer than this leader's. With an epoch it recognizes that and retries.
            message = f"{self} has no replica on broker {replica}"
            raise NotLeader(message) if leader_epoch < 0 else UnknownLeaderEpoch(message)
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
        """Record that a follower has everything before the offset that it fetches.

        Called once for each request: a waiting fetch that reads again when it is woken has no news of the follower.
        """
        follower = self.followers.get(replica)
        if follower is None:
            raise NotLeader(f"{self} has no replica on broker {replica}")
        if self.rules.is_stale(replica, broker_epoch):
            raise NotLeader(f"{self}: broker {replica} fetched with the stale broker epoch {broker_epoch}")
        old_end, old_start = follower.log_end_offset, follower.log_start_offset
        follower.fetched(
            offset, log_start_offset, leader_end=self.log.log_end_offset, broker_epoch=broker_epoch, now_ms=now_ms
        )
        self.maybe_expand(replica)
        if offset != old_end:
            self._advance_high_watermark()
        if log_start_offset != old_start:
            self.wake_deletes()

    # -- in-sync replicas --

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The replicas that must have a batch before it is committed: the ISR and the proposed ISR."""
        proposal = self.proposal
        if proposal is None:
            return self.assignment.isr
        return tuple({*self.assignment.isr, *proposal.isr})

    @property
    def effective_min_isr(self) -> int:
        """The in-sync replicas that `acks=all` needs: `min.insync.replicas`, or all replicas if there are fewer."""
        return min(self.log.settings.min_insync_replicas, len(self.assignment.replicas))

    @property
    def is_under_min_isr(self) -> bool:
        """Whether the ISR is too small for `acks=all`."""
        return len(self.assignment.isr) < self.effective_min_isr

    def maybe_expand(self, replica: int) -> None:
        """Propose to add a follower to the ISR if it has caught up."""
        if self.proposal is not None or replica in self.assignment.isr:
            return
        follower = self.followers[replica]
        end = follower.log_end_offset
        if end < self.log.high_watermark or end < self.epoch_start_offset:
            return
        if self.rules.is_eligible(replica, follower.broker_epoch):
            self._propose((*self.assignment.isr, replica))

    def maybe_shrink(self, now_ms: int) -> None:
        """Propose to remove the replicas from the ISR that have lagged for too long."""
        if not self.is_leader or self.proposal is not None or len(self.assignment.isr) < 2:
            return
        end, max_lag_ms = self.log.log_end_offset, self.rules.max_lag_ms
        late = [
            replica
            for replica in self.assignment.isr
            if replica != self.broker_id and not self.followers[replica].is_caught_up(end, now_ms, max_lag_ms)
        ]
        if late:
            logger.info("Shrinking the ISR of %s: brokers %s lag behind offset %d", self, late, end)
            self._propose(tuple(replica for replica in self.assignment.isr if replica not in late))

    def on_isr_decided(self, proposal: Proposal, answer: ResponsePartitionData) -> None:
        """Apply a proposal that the controller accepted, unless the partition has changed since."""
        if self.proposal is not proposal or answer.leader_epoch != self.leader_epoch:
            return
        if answer.partition_epoch >= self.assignment.partition_epoch:
            self.proposal = None
            self.assignment = self.assignment._replace(
                isr=tuple(answer.isr),
                partition_epoch=answer.partition_epoch,
                leader_recovery=answer.leader_recovery_state,
            )
            logger.info("ISR of %s is now %s", self, answer.isr)
            self._advance_high_watermark()

    def on_isr_refused(self, proposal: Proposal, error: ApiError) -> bool:
        """Handle a rejected proposal; return whether to send it again."""
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
        """Return the smallest log start offset of all live replicas, which DeleteRecords waits for."""
        starts = [follower.log_start_offset for broker, follower in self.followers.items() if is_alive(broker)]
        if self.future is not None:
            starts.append(self.future.log_start_offset)
        return min([self.log.log_start_offset, *starts])

    def delete_records(self, offset: int) -> int:
        """Raise the log start to an offset, or to the high watermark for -1; return the new log start."""
        self.check_leader()
        target = self.log.high_watermark if offset == -1 else offset
        if target < 0 or target > self.log.high_watermark:
            raise OffsetOutOfRange(f"offset {offset} is not within 0 and the high watermark, {self.log.high_watermark}")
        advance_log_start(self.log, target)
        return target

    def check_readable(self, isolation: Isolation) -> None:
        """Raise if a new leader's high watermark may still be behind its predecessor's."""
        if isolation is not Isolation.LOG_END and self.log.high_watermark < self.epoch_start_offset:
            raise OffsetNotAvailable(f"{self}: the new leader's high watermark has not reached the start of its epoch")

    def _advance_high_watermark(self) -> None:
        """Raise the high watermark to the offset that all in-sync replicas have."""
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
        """Return the log end offset that all counted replicas have; -1 if nothing may be committed."""
        if self.is_under_min_isr:
            return NO_OFFSET
        leader_end = end = self.log.log_end_offset
        maximal_isr = self.maximal_isr
        for replica, follower in self.followers.items():
            if follower.log_end_offset < end and (replica in maximal_isr or self._is_joining(follower, leader_end)):
                end = follower.log_end_offset
        return end

    def _is_joining(self, follower: Follower, leader_end: int) -> bool:
        """Return whether the high watermark waits for a follower that has nearly caught up, so that it can join."""
        rules = self.rules
        return follower.is_caught_up(leader_end, rules.now_ms(), rules.max_lag_ms) and rules.is_eligible(
            follower.broker, follower.broker_epoch
        )

    def wake_consumers(self) -> None:
        """Wake consumers after this follower's high watermark has risen."""
        for watch in self.consumer_watches:
            watch.wake(self.completions)

    def mark_watches(self) -> None:
        """Make all readers read this partition with their next fetch."""
        for watches in (self.consumer_watches, self.follower_watches):
            for watch in watches:
                watch.mark()

    def _log_start_moved(self) -> None:
        self.mark_watches()
        if self.on_start_moved is not None:
            self.on_start_moved(self)

    def wake_all(self) -> None:
        """Wake all requests that wait for this partition."""
        if self.waiting_produces.operations:
            self.completions.add(self.waiting_produces)
        self.wake_deletes()
        for watches in (self.consumer_watches, self.follower_watches):
            for watch in watches:
                watch.wake(self.completions)

    @property
    def waiting_deletes(self) -> WaitingList:
        """The DeleteRecords requests that wait for replicas. Created on first use: most partitions never have one."""
        if self._waiting_deletes is None:
            self._waiting_deletes = WaitingList()
        return self._waiting_deletes

    def wake_deletes(self) -> None:
        """Wake the DeleteRecords requests that wait for replicas."""
        if self._waiting_deletes is not None and self._waiting_deletes.operations:
            self.completions.add(self._waiting_deletes)

    def end_watches(self) -> None:
        """End all watches because the partition leaves this broker. Readers get an error with their next fetch."""
        for watches in (self.consumer_watches, self.follower_watches):
            for watch in watches:
                watch.lose_partition()
            watches.clear()
