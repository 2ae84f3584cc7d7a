"""The configuration of a quorum member: its identity, its peers, its timeouts.

Names and defaults are those of Kafka's `controller.quorum.*` settings.
"""

from dataclasses import dataclass
from typing import Protocol

from ottla.metadata.consensus.voters import Endpoints, Node, ReplicaKey, Voter

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = bytes(15) + b"\x01"
METADATA_PARTITION = 0
CHECK_QUORUM_FACTOR = 1.5
"""A leader resigns if no majority has fetched within this many fetch timeouts. Followers time out earlier."""
OBSERVER_SESSION_MS = 300_000
"""An observer that has not fetched for this long is no longer described."""
CAUGHT_UP_WITHIN_MS = 3_600_000
"""A new voter must have been caught up once, and have fetched within this time."""


class Randomness(Protocol):
    """The part of `random.Random` that elections need."""

    def randrange(self, stop: int, /) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsensusConfig:
    """The configuration of one member. `bootstrap` has the bootstrap servers, or else the configured voters."""

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
    """How long the first voter tries to reconnect to a lost leader; each further voter waits twice this in addition."""
    request_timeout_ms: int = 2_000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 1_048_576
    fetch_snapshot_max_bytes: int = 1_048_576

    def __post_init__(self) -> None:
        assert self.local.id >= 0, "a node has an id"
        assert any(self.local.directory), "a replica has a directory id"
        assert self.bootstrap, "a member has bootstrap servers or voters"

    @property
    def local_voter(self) -> Voter:
        return Voter(self.local, self.endpoints, self.supported_kraft_versions)
