"""What a leader knows of the others: how far they fetched, when, and so what is committed and whether it still leads.

The high watermark is the largest offset that a majority of the voters has made durable: a fetch from an offset says
that everything before it is. It is known only once a record of the leader's own epoch is among it, and then covers all
that came before; this is why a leader begins with a control record.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from ottla.metadata.consensus.config import CAUGHT_UP_WITHIN_MS, OBSERVER_SESSION_MS
from ottla.metadata.consensus.voters import Endpoints, ReplicaKey, Voter, VoterSet
from ottla.protocol.wire.types import ZERO_UUID


@dataclass(slots=True)
class Progress:
    """How far one replica is."""

    key: ReplicaKey
    endpoints: Endpoints = ()
    end_offset: int = -1
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    leader_end_at_last_fetch: int = -1

    def is_replica(self, key: ReplicaKey) -> bool:
        return self.key.id == key.id and self.key.directory in (ZERO_UUID, key.directory)

    def fetched(self, offset: int, leader_end: int, now_ms: int) -> None:
        if offset >= leader_end:
            self.last_caught_up_ms = now_ms
        elif 0 < self.leader_end_at_last_fetch <= offset:
            self.last_caught_up_ms = self.last_fetch_ms  # it had by now all that there was then
        self.leader_end_at_last_fetch = leader_end
        self.last_fetch_ms = max(self.last_fetch_ms, now_ms)
        self.end_offset = offset


@dataclass(slots=True)
class VoterChange:
    """An AddRaftVoter or RemoveRaftVoter that waits: for the new voter's versions, then for the commit."""

    ticket: Hashable | None
    deadline: int
    adding: Voter | None = None
    request_id: int | None = None
    """The ApiVersions request to the new voter, until it is answered."""
    acknowledge_when_committed: bool = True
    last_offset: int | None = None


@dataclass(slots=True)
class Parked:
    """A fetch that waits for records or for the high watermark."""

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
        self.upgrade: VoterSet | None = None
        """Before kraft.version 1: what the voters said of themselves, for the day of the upgrade."""
        self.parked: list[Parked] = []

    def grants(self, key: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        return False

    def progress(self, key: ReplicaKey) -> Progress:
        voter = self.voters.get(key.id)
        if voter is not None and voter.is_replica(key):
            return voter
        return self.observers.setdefault(key, Progress(key))

    def fetched(self, key: ReplicaKey, offset: int, leader_end: int, now_ms: int) -> bool:
        """A replica fetched from this offset. True when that raised the high watermark."""
        progress = self.progress(key)
        progress.fetched(offset, leader_end, now_ms)
        self.heard_from(key, now_ms)
        return self.voters.get(key.id) is progress and self.raise_high_watermark()

    def heard_from(self, key: ReplicaKey, now_ms: int) -> None:
        """A majority that fetches keeps the leader in office; it is one of them itself while it is a voter."""
        voter = self.voters.get(key.id)
        if voter is not None and voter.is_replica(key):
            self.fetched_voters.add(key.id)
        needed = len(self.voters) // 2 + 1 - (self.leader_id in self.voters)
        if len(self.fetched_voters) >= needed:
            self.fetched_voters.clear()
            self.check_quorum_deadline = now_ms + self.check_quorum_ms

    def flushed(self, end_offset: int) -> bool:
        """The leader's own log is durable up to here; that counts for it as a fetch does for the others."""
        own = self.progress(self.local.key)
        own.end_offset = max(own.end_offset, end_offset)
        return self.raise_high_watermark()

    def raise_high_watermark(self) -> bool:
        offsets = sorted((voter.end_offset for voter in self.voters.values()), reverse=True)
        majority = offsets[len(offsets) // 2]
        if majority <= self.epoch_start_offset:
            return False
        if self.high_watermark is not None and majority <= self.high_watermark:
            return False  # a changed set of voters may have a smaller majority for a while
        self.high_watermark = majority
        return True

    def change_voters(self, voters: VoterSet) -> None:
        """Voters that are new keep what was known of them as observers, and the other way around."""
        old = self.voters
        self.voters = {}
        for voter in voters:
            known = old.get(voter.key.id)
            if known is not None and known.is_replica(voter.key):
                del old[voter.key.id]
            else:
                known = self.observers.pop(voter.key, None) or Progress(voter.key)
            known.key, known.endpoints = voter.key, voter.endpoints
            self.voters[voter.key.id] = known
        for gone in old.values():
            gone.endpoints = ()
            self.observers.setdefault(gone.key, gone)
        self.fetched_voters &= self.voters.keys()

    def successors(self) -> list[ReplicaKey]:
        """The other voters, those first that are furthest and so most likely to win."""
        others = [voter for voter in self.voters.values() if voter.key.id != self.leader_id]
        return [voter.key for voter in sorted(others, key=lambda voter: -voter.end_offset)]

    def silent_voters(self, now_ms: int, quiet_ms: int) -> list[ReplicaKey]:
        """Who must be told that this node leads: it does not fetch, so it may not know."""
        others = (voter for voter in self.voters.values() if voter.key.id != self.leader_id)
        return [voter.key for voter in others if now_ms - voter.last_fetch_ms >= quiet_ms or voter.last_fetch_ms < 0]

    def is_caught_up(self, key: ReplicaKey, now_ms: int) -> bool:
        known = self.observers.get(key)
        return known is not None and known.last_caught_up_ms > 0 and known.last_fetch_ms > now_ms - CAUGHT_UP_WITHIN_MS

    def active_observers(self, now_ms: int) -> list[Progress]:
        self.observers = {
            key: progress
            for key, progress in self.observers.items()
            if key == self.local.key or now_ms - progress.last_fetch_ms < OBSERVER_SESSION_MS
        }
        return list(self.observers.values())

    @property
    def checks_quorum(self) -> bool:
        """A leader that is the only voter needs nobody."""
        return not (len(self.voters) == 1 and self.leader_id in self.voters)
