"""The leader: how far each replica has fetched, the high watermark, and the check that a majority still follows.

The high watermark is the largest offset that a majority of the voters has made durable. A fetch offset acknowledges
all records before it. The leader knows the high watermark only when a record of its own epoch is committed, and with it
all earlier ones; this is why an epoch starts with a control record.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from ottla.metadata.consensus.config import CAUGHT_UP_WITHIN_MS, OBSERVER_SESSION_MS
from ottla.metadata.consensus.voters import Endpoints, ReplicaKey, Voter, VoterSet
from ottla.protocol.wire.types import ZERO_UUID


@dataclass(slots=True)
class Progress:
    """The fetch progress of one replica, voter or observer."""

    key: ReplicaKey
    endpoints: Endpoints = ()
    end_offset: int = -1
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    leader_end_at_last_fetch: int = -1

    def is_replica(self, key: ReplicaKey) -> bool:
        return self.key.id == key.id and self.key.directory in (ZERO_UUID, key.directory)

    def record_fetch(self, offset: int, leader_end: int, now_ms: int) -> None:
        if offset >= leader_end:
            self.last_caught_up_ms = now_ms
        elif 0 < self.leader_end_at_last_fetch <= offset:
            self.last_caught_up_ms = self.last_fetch_ms  # it now has all records that the log had at its last fetch
        self.leader_end_at_last_fetch = leader_end
        self.last_fetch_ms = max(self.last_fetch_ms, now_ms)
        self.end_offset = offset


@dataclass(slots=True)
class VoterChange:
    """A pending AddRaftVoter or RemoveRaftVoter: it waits for the new voter's versions, then for the commit."""

    ticket: Hashable | None
    deadline: int
    adding: Voter | None = None
    request_id: int | None = None
    """The ApiVersions request to the new voter, until its response arrives."""
    acknowledge_when_committed: bool = True
    last_offset: int | None = None


@dataclass(slots=True)
class WaitingFetch:
    """A fetch that waits for records or for a higher high watermark."""

    ticket: Hashable
    request: object
    version: int
    listener: str
    fetch_offset: int
    deadline: int


class Leader:
    """The role of the leader."""

    def __init__(
        self, local: Voter, epoch: int, start_offset: int, voters: VoterSet, check_quorum_ms: int, now_ms: int
    ) -> None:
        self.local = local
        self.epoch = epoch
        self.epoch_start_offset = start_offset
        self.leader_id = local.key.id
        self.leader_endpoints = local.endpoints
        self.voted: ReplicaKey | None = None
        self.high_watermark: int | None = None
        self.voters = {voter.key.id: Progress(voter.key, voter.endpoints) for voter in voters}
        self.observers: dict[ReplicaKey, Progress] = {}
        self.fetched_voters: set[int] = set()
        self.check_quorum_ms = check_quorum_ms
        self.check_quorum_deadline = now_ms + check_quorum_ms
        self.begin_epoch_at = now_ms
        self.resign_requested = False
        self.change: VoterChange | None = None
        self.upgrade_voters: VoterSet | None = None
        """Before kraft.version 1: the voters as they describe themselves, for the upgrade."""
        self.waiting_fetches: list[WaitingFetch] = []

    def can_grant_vote(self, key: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        return False

    def progress_of(self, key: ReplicaKey) -> Progress:
        voter = self.voters.get(key.id)
        if voter is not None and voter.is_replica(key):
            return voter
        return self.observers.setdefault(key, Progress(key))

    def record_fetch(self, key: ReplicaKey, offset: int, leader_end: int, now_ms: int) -> bool:
        """Record a fetch from an offset, and return whether it raises the high watermark."""
        progress = self.progress_of(key)
        progress.record_fetch(offset, leader_end, now_ms)
        self.record_contact(key, now_ms)
        return self.voters.get(key.id) is progress and self.raise_high_watermark()

    def record_contact(self, key: ReplicaKey, now_ms: int) -> None:
        """Record contact with a replica. A majority, the leader included if it is a voter, extends its leadership."""
        voter = self.voters.get(key.id)
        if voter is not None and voter.is_replica(key):
            self.fetched_voters.add(key.id)
        needed = len(self.voters) // 2 + 1 - (self.leader_id in self.voters)
        if len(self.fetched_voters) >= needed:
            self.fetched_voters.clear()
            self.check_quorum_deadline = now_ms + self.check_quorum_ms

    def record_flush(self, end_offset: int) -> bool:
        """Record how far the leader's own log is durable, and return whether that raises the high watermark."""
        own = self.progress_of(self.local.key)
        own.end_offset = max(own.end_offset, end_offset)
        return self.raise_high_watermark()

    def raise_high_watermark(self) -> bool:
        offsets = sorted((voter.end_offset for voter in self.voters.values()), reverse=True)
        majority = offsets[len(offsets) // 2]
        if majority <= self.epoch_start_offset:
            return False
        if self.high_watermark is not None and majority <= self.high_watermark:
            return False  # a new voter set may have a lower majority offset at first
        self.high_watermark = majority
        return True

    def change_voters(self, voters: VoterSet) -> None:
        """Take a new voter set. Replicas keep their progress when they change between voter and observer."""
        old = self.voters
        self.voters = {}
        for voter in voters:
            progress = old.get(voter.key.id)
            if progress is not None and progress.is_replica(voter.key):
                del old[voter.key.id]
            else:
                progress = self.observers.pop(voter.key, None) or Progress(voter.key)
            progress.key, progress.endpoints = voter.key, voter.endpoints
            self.voters[voter.key.id] = progress
        for removed in old.values():
            removed.endpoints = ()
            self.observers.setdefault(removed.key, removed)
        self.fetched_voters &= self.voters.keys()

    def successors(self) -> list[ReplicaKey]:
        """Return the other voters, the most caught-up first: they are the most likely to win an election."""
        others = [voter for voter in self.voters.values() if voter.key.id != self.leader_id]
        return [voter.key for voter in sorted(others, key=lambda voter: -voter.end_offset)]

    def silent_voters(self, now_ms: int, quiet_ms: int) -> list[ReplicaKey]:
        """Return the voters that do not fetch. They may not know the leader, so it sends them BeginQuorumEpoch."""
        others = (voter for voter in self.voters.values() if voter.key.id != self.leader_id)
        return [voter.key for voter in others if now_ms - voter.last_fetch_ms >= quiet_ms or voter.last_fetch_ms < 0]

    def is_caught_up(self, key: ReplicaKey, now_ms: int) -> bool:
        progress = self.observers.get(key)
        return (
            progress is not None
            and progress.last_caught_up_ms > 0
            and progress.last_fetch_ms > now_ms - CAUGHT_UP_WITHIN_MS
        )

    def active_observers(self, now_ms: int) -> list[Progress]:
        self.observers = {
            key: progress
            for key, progress in self.observers.items()
            if key == self.local.key or now_ms - progress.last_fetch_ms < OBSERVER_SESSION_MS
        }
        return list(self.observers.values())

    @property
    def checks_quorum(self) -> bool:
        """Whether the leader needs fetches of other voters. The only voter does not."""
        return not (len(self.voters) == 1 and self.leader_id in self.voters)
