"""The roles a member of the quorum can have, each with what only it knows.

    Unattached ──timeout──▶ Prospective ──majority──▶ Candidate ──majority──▶ Leader ──▶ Resigned
        ▲                     │ lost                     │ timeout: Prospective            │
        ├─────────────────────┘                          ▼                                 │
        └────────────────────────────timeout, epoch + 1────────────────────────────────────┘
    Follower ──fetch timeout──▶ Prospective     (a higher epoch anywhere: Unattached or Follower)

A Prospective asks whether it would be elected before it raises the epoch (KIP-996), so that a node that was cut off
disturbs nobody when it comes back. An observer is Unattached or Follower, and never any other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ottla.metadata.consensus.leading import Leader
from ottla.metadata.consensus.log_view import OffsetAndEpoch
from ottla.metadata.consensus.voters import Endpoints, ReplicaKey
from ottla.protocol.wire.types import ZERO_UUID


class Tally:
    """The votes of one round, from the voters as they were when it began."""

    def __init__(self, voters: Iterable[ReplicaKey], own: int) -> None:
        self.voters = {key.id: key for key in voters}
        self.votes: dict[int, bool] = {own: True}
        self._unreachable: set[int] = set()

    def record(self, voter_id: int, granted: bool) -> None:
        if voter_id in self.voters:
            self.votes[voter_id] = granted

    def miss(self, voter_id: int) -> None:
        """A voter is not there; should it answer after all, that counts."""
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
        """Whether those who refused, and with them those who are not there, leave no majority. Where nobody refused,
        the others may only have to come back."""
        rejected = sum(not granted for granted in self.votes.values())
        missing = sum(key.id in self._unreachable for key in self.open)
        return rejected > 0 and len(self.voters) - rejected - missing < self.majority

    @property
    def open(self) -> list[ReplicaKey]:
        return [key for voter, key in self.voters.items() if voter not in self.votes]


@dataclass(slots=True)
class Unattached:
    """No leader to fetch from. The vote, if one was given in this epoch, is kept here."""

    epoch: int
    leader_id: int = -1
    voted: ReplicaKey | None = None
    high_watermark: int | None = None
    election_deadline: int | None = None
    leader_endpoints: Endpoints = ()

    def grants(self, key: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        return _grants(self, key, up_to_date=up_to_date, pre_vote=pre_vote)


@dataclass(slots=True)
class Prospective:
    """Asks for pre-votes; epoch, vote and known leader are still those of before."""

    epoch: int
    tally: Tally
    election_deadline: int
    leader_id: int = -1
    leader_endpoints: Endpoints = ()
    voted: ReplicaKey | None = None
    high_watermark: int | None = None

    def grants(self, key: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        return _grants(self, key, up_to_date=up_to_date, pre_vote=pre_vote)


@dataclass(slots=True)
class Candidate:
    """Voted for itself in a new epoch and asks the others to."""

    epoch: int
    tally: Tally
    election_deadline: int
    voted: ReplicaKey
    high_watermark: int | None = None
    leader_id: int = -1
    leader_endpoints: Endpoints = ()

    def grants(self, key: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        return pre_vote and up_to_date


@dataclass(slots=True)
class SnapshotFetch:
    """A snapshot on its way from the leader. `installing`: all of it is here, and the driver puts it in place."""

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
    """Whether it is in touch with the leader."""
    is_leader_lost: bool = False
    """The connection to the leader broke, and it was not reached again since."""
    has_updated_leader: bool = False
    snapshot: SnapshotFetch | None = None

    def grants(self, key: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        # Who is in touch with the leader helps nobody to unseat it; who never reached it may.
        return pre_vote and up_to_date and not self.has_fetched


@dataclass(slots=True)
class Resigned:
    """Led this epoch and does so no more. It tells the others and waits, as it may not vote in this epoch again."""

    epoch: int
    leader_id: int
    leader_endpoints: Endpoints
    election_deadline: int
    unacknowledged: set[int]
    successors: list[ReplicaKey] = field(default_factory=list)
    voted: ReplicaKey | None = None
    high_watermark: int | None = None

    def grants(self, key: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
        return pre_vote and up_to_date


State = Unattached | Prospective | Candidate | Follower | Leader | Resigned


def _grants(state: Unattached | Prospective, key: ReplicaKey, *, up_to_date: bool, pre_vote: bool) -> bool:
    if pre_vote:
        return up_to_date  # binds nobody, so any number may be given
    if state.voted is not None:
        return state.voted.id == key.id and state.voted.directory in (ZERO_UUID, key.directory)
    return up_to_date and state.leader_id < 0
