"""What a member of the quorum is told once: who it is, where the others are, and how patient to be.

Names and defaults are those of Kafka's `controller.quorum.*` settings.
"""

from dataclasses import dataclass
from typing import Protocol

from ottla.metadata.consensus.voters import Endpoints, Node, ReplicaKey, Voter

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = bytes(15) + b"\x01"
METADATA_PARTITION = 0
CHECK_QUORUM_FACTOR = 1.5
"""A leader gives up when no majority fetched for so many fetch timeouts: a little more patient than followers."""
OBSERVER_SESSION_MS = 300_000
"""An observer that did not fetch for so long is no longer described."""
CAUGHT_UP_WITHIN_MS = 3_600_000
"""A new voter must have been caught up once, and have fetched within the last hour."""


class Randomness(Protocol):
    """As much of `random.Random` as elections need."""

    def randrange(self, stop: int, /) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsensusConfig:
    """`bootstrap` is where a node without a leader asks: bootstrap servers, or else the configured voters."""

    local: ReplicaKey
    cluster_id: str
    listener: str
    endpoints: Endpoints
    bootstrap: tuple[Node, ...]
    can_become_voter: bool = True
    auto_join: bool = False
    supported_kraft_versions: tuple[int, int] = (0, 1)
    software_name: str = "ottla"
    software_version: str = "unknown"
    election_timeout_ms: int = 1_000
    fetch_timeout_ms: int = 2_000
    election_backoff_max_ms: int = 1_000
    leader_lost_ms: int = 50
    """For how long the first voter tries to reach a leader that hung up; each further one twice as long in addition."""
    request_timeout_ms: int = 2_000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 1_048_576
    fetch_snapshot_max_bytes: int = 1_048_576

    def __post_init__(self) -> None:
        assert self.local.id >= 0, "every node has an id"
        assert any(self.local.directory), "a replica's directory has an id"
        assert self.bootstrap, "neither bootstrap servers nor voters are configured"

    @property
    def local_voter(self) -> Voter:
        return Voter(self.local, self.endpoints, self.supported_kraft_versions)
