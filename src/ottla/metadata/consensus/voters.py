"""Replicas, voters and where they listen.

A replica is known by its node id and the id of the directory its log lies in (KIP-853): a node that comes back with an
empty disk is another replica. Voters from `controller.quorum.voters` have no directory and match by id alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ottla.protocol.messages.records import raft_records
from ottla.protocol.messages.records.raft_records import VotersRecord, VotersVoter
from ottla.protocol.wire.types import ZERO_UUID

KRAFT_VERSION_FEATURE = "kraft.version"
RECONFIGURABLE = 1
"""The first kraft.version whose voters are kept in the log and may change."""


class ReplicaKey(NamedTuple):
    """Who a replica is; a directory of zeros is one that is not known."""

    id: int
    directory: bytes = ZERO_UUID


class Node(NamedTuple):
    """Somewhere a request can be sent. Bootstrap servers, whose ids are not known, count down from -2."""

    id: int
    host: str
    port: int


class Endpoint(NamedTuple):
    """A listener of a replica."""

    name: str
    host: str
    port: int


Endpoints = tuple[Endpoint, ...]


def address(endpoints: Endpoints, listener: str) -> Endpoint | None:
    """Where a replica listens under this name; listeners' names do not care for case."""
    return next((endpoint for endpoint in endpoints if endpoint.name.upper() == listener.upper()), None)


@dataclass(frozen=True, slots=True)
class Voter:
    """One voter: where it listens, and which kraft.versions it can run."""

    key: ReplicaKey
    endpoints: Endpoints = ()
    supported: tuple[int, int] = (0, 0)

    def is_replica(self, key: ReplicaKey) -> bool:
        return self.key.id == key.id and self.key.directory in (ZERO_UUID, key.directory)

    def differs(self, other: Voter) -> bool:
        """Order of endpoints tells nothing: Kafka keeps them in maps."""
        mine = {endpoint.name.upper(): endpoint[1:] for endpoint in self.endpoints}
        theirs = {endpoint.name.upper(): endpoint[1:] for endpoint in other.endpoints}
        return self.key != other.key or self.supported != other.supported or mine != theirs


@dataclass(frozen=True, slots=True)
class VoterSet:
    """The voters by node id. Immutable: each change of membership is a new set, one voter apart from the last."""

    by_id: Mapping[int, Voter]

    @classmethod
    def of(cls, voters: Iterable[Voter]) -> VoterSet:
        return cls({voter.key.id: voter for voter in sorted(voters, key=lambda voter: voter.key)})

    @classmethod
    def from_record(cls, record: VotersRecord) -> VoterSet:
        return cls.of(
            Voter(
                ReplicaKey(voter.voter_id, bytes(voter.voter_directory_id)),
                tuple(Endpoint(at.name, at.host, at.port) for at in voter.endpoints),
                (voter.kraft_version_feature.min_supported_version, voter.kraft_version_feature.max_supported_version),
            )
            for voter in record.voters
        )

    def to_record(self) -> VotersRecord:
        return VotersRecord(
            voters=[
                VotersVoter(
                    voter_id=voter.key.id,
                    voter_directory_id=voter.key.directory,
                    endpoints=[
                        raft_records.Endpoint(name=at.name, host=at.host, port=at.port) for at in voter.endpoints
                    ],
                    kraft_version_feature=raft_records.KRaftVersionFeature(
                        min_supported_version=voter.supported[0], max_supported_version=voter.supported[1]
                    ),
                )
                for voter in self
            ]
        )

    def __iter__(self) -> Iterator[Voter]:
        return iter(self.by_id.values())

    def __len__(self) -> int:
        return len(self.by_id)

    @property
    def replicas(self) -> list[ReplicaKey]:
        return [voter.key for voter in self.by_id.values()]

    def is_voter(self, key: ReplicaKey) -> bool:
        voter = self.by_id.get(key.id)
        return voter is not None and voter.is_replica(key)

    def is_only_voter(self, key: ReplicaKey) -> bool:
        return len(self.by_id) == 1 and self.is_voter(key)

    def endpoints_of(self, node_id: int) -> Endpoints:
        voter = self.by_id.get(node_id)
        return voter.endpoints if voter is not None else ()

    def node(self, node_id: int, listener: str) -> Node | None:
        at = address(self.endpoints_of(node_id), listener)
        return Node(node_id, at.host, at.port) if at is not None else None

    def needs_update(self, local: Voter) -> bool:
        """Whether the log says something else of this voter than it knows of itself."""
        known = self.by_id.get(local.key.id)
        return known is not None and known.is_replica(local.key) and known.differs(local)

    def added(self, voter: Voter) -> VoterSet | None:
        """None when the id is taken, if only by an older directory: that one must be removed first."""
        return None if voter.key.id in self.by_id else VoterSet.of([*self, voter])

    def removed(self, key: ReplicaKey) -> VoterSet | None:
        """None for a replica that is no voter, and for the last one: nobody could ever add another."""
        voter = self.by_id.get(key.id)
        if voter is None or voter.key != key or len(self.by_id) == 1:
            return None
        return VoterSet.of(other for other in self if other.key.id != key.id)

    def updated(self, voter: Voter, *, any_directory: bool = False) -> VoterSet | None:
        """None when no such voter is known. Before kraft.version 1 directories are not known and may be anything."""
        known = self.by_id.get(voter.key.id)
        if known is None or not (any_directory or known.is_replica(voter.key)):
            return None
        return VoterSet.of([*(other for other in self if other.key.id != voter.key.id), voter])

    def support(self, kraft_version: int) -> bool:
        return all(voter.supported[0] <= kraft_version <= voter.supported[1] for voter in self)
