"""The roles of a quorum member, one class each with the state that only this role has.

The package docstring has the diagram of all transitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ottla.metadata.consensus.leader import Leader
from ottla.metadata.consensus.log_view import OffsetAndEpoch
from ottla.metadata.consensus.voters import Endpoints, ReplicaKey
from ottla.protocol.wire.types import ZERO_UUID


class Tally:
    """The votes of one round, from the voters at its start."""

    def __init__(self, voters: Iterable[ReplicaKey], own: int) -> None:
        self.voters = {key.id: key for key in voters}
        self.votes: dict[int, bool] = {own: True}
        self._unreachable: set[int] = set()

    def record(self, voter_id: int, granted: bool) -> None:
        if voter_id in self.voters:
            self.votes[voter_id] = granted

    def mark_unreachable(self, voter_id: int) -> None:
        """Note that a voter cannot be reached. If it votes after all, its vote counts."""
        self._unreachable.add(voter_id)

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    @property
    def granting(self) -> list[int]:
        return sorted(voter for voter, granted in self.votes.items() if granted and voter in self.voters)

    @property
    def is_won(self) -> bool:
        return len(self.granting) >= self.majority

    @property
    def is_lost(self) -> bool:
        """Whether rejections and unreachable voters leave no majority.

        Unreachable voters alone do not lose a round: they may come back.
        """
        rejected = sum(not granted for granted in self.votes.values())
        missing = sum(key.id in self._unreachable for key in self.pending)
        return rejected > 0 and len(self.voters) - rejected - missing < self.majority

    @property
    def pending(self) -> list[ReplicaKey]:
        return [key for voter, key in self.voters.items() if voter not in self.votes]


@dataclass(slots=True)
class Unattached:
    """Knows no leader to fetch from. With `voted` set, this is Kafka's former role Voted."""

    epoch: int
    leader_id: int = -1
    voted: ReplicaKey | None = None
    high_watermark: int | None = None
    election_deadline: int | None = None
    leader_endpoints: Endpoints = ()

    def can_grant_vote(self, key: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        return _can_grant_vote(self, key, up_to_date=up_to_date, pre_vote=pre_vote)


@dataclass(slots=True)
class Prospective:
    """Asks for pre-votes. Epoch, vote and known leader stay as they were."""

    epoch: int
    tally: Tally
    election_deadline: int
    leader_id: int = -1
    leader_endpoints: Endpoints = ()
    voted: ReplicaKey | None = None
    high_watermark: int | None = None

    def can_grant_vote(self, key: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        return _can_grant_vote(self, key, up_to_date=up_to_date, pre_vote=pre_vote)


@dataclass(slots=True)
class Candidate:
    """Has voted for itself in a new epoch, and asks the others for their votes."""

    epoch: int
    tally: Tally
    election_deadline: int
    voted: ReplicaKey
    high_watermark: int | None = None
    leader_id: int = -1
    leader_endpoints: Endpoints = ()

    def can_grant_vote(self, key: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        return pre_vote and up_to_date


@dataclass(slots=True)
class SnapshotFetch:
    """A snapshot that is being fetched. With `installing` set it is complete, and the driver installs it."""

    snapshot: OffsetAndEpoch
    position: int = 0
    installing: bool = False


@dataclass(slots=True)
class Follower:
    """Fetches from a leader."""

    epoch: int
    leader_id: int
    leader_endpoints: Endpoints
    fetch_deadline: int
    update_voter_at: int
    voted: ReplicaKey | None = None
    high_watermark: int | None = None
    has_fetched: bool = False
    """Whether the leader has answered, and its connection has not broken since."""
    is_leader_lost: bool = False
    """Whether the connection to the leader broke, and the leader has not answered since."""
    has_updated_leader: bool = False
    snapshot: SnapshotFetch | None = None

    def can_grant_vote(self, key: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        # A follower that reaches the leader does not help to replace it (KIP-996).
        return pre_vote and up_to_date and not self.has_fetched


@dataclass(slots=True)
class Resigned:
    """Led this epoch until it resigned. It sends EndQuorumEpoch and waits, because it cannot vote in this epoch."""

    epoch: int
    leader_id: int
    leader_endpoints: Endpoints
    election_deadline: int
    unacknowledged: set[int]
    successors: list[ReplicaKey] = field(default_factory=list)
    voted: ReplicaKey | None = None
    high_watermark: int | None = None

    def can_grant_vote(self, key: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        return pre_vote and up_to_date


Role = Unattached | Prospective | Candidate | Follower | Leader | Resigned


def role_name(role: Role) -> str:
    return type(role).__name__.lower()


def _can_grant_vote(role: Unattached | Prospective, key: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
    if pre_vote:
        return up_to_date  # a pre-vote does not bind the voter, so it may grant several
    if role.voted is not None:
        return role.voted.id == key.id and role.voted.directory in (ZERO_UUID, key.directory)
    return up_to_date and role.leader_id < 0
