"""Replicas, voters, and their endpoints.

A replica is identified by its node id and the id of its log directory (KIP-853): a node that returns with an empty disk
is another replica. Voters from `controller.quorum.voters` have no directory and match by id alone.
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
"""From this kraft.version on, the voters are in the log and can change."""


class ReplicaKey(NamedTuple):
    """The identity of a replica. A directory of zeros is unknown."""

    id: int
    directory: bytes = ZERO_UUID


class Node(NamedTuple):
    """A node that requests can be sent to. Bootstrap servers have unknown ids; they get -2, -3 and so on."""

    id: int
    host: str
    port: int


class Endpoint(NamedTuple):
    """A listener of a replica."""

    name: str
    host: str
    port: int


Endpoints = tuple[Endpoint, ...]


def find_endpoint(endpoints: Endpoints, listener: str) -> Endpoint | None:
    """Return the endpoint of a listener, or None. Listener names are case-insensitive."""
    return next((endpoint for endpoint in endpoints if endpoint.name.upper() == listener.upper()), None)


@dataclass(frozen=True, slots=True)
class Voter:
    """A voter: its endpoints and the kraft.versions that it supports."""

    key: ReplicaKey
    endpoints: Endpoints = ()
    supported: tuple[int, int] = (0, 0)

    def is_replica(self, key: ReplicaKey) -> bool:
        return self.key.id == key.id and self.key.directory in (ZERO_UUID, key.directory)

    def differs(self, other: Voter) -> bool:
        """Whether the other description differs. The order of endpoints does not count: Kafka keeps them in maps."""
        mine = {endpoint.name.upper(): endpoint[1:] for endpoint in self.endpoints}
        theirs = {endpoint.name.upper(): endpoint[1:] for endpoint in other.endpoints}
        return self.key != other.key or self.supported != other.supported or mine != theirs


@dataclass(frozen=True, slots=True)
class VoterSet:
    """The voters by node id. Immutable: each change gives a new set that differs by one voter."""

    by_id: Mapping[int, Voter]

    @classmethod
    def from_voters(cls, voters: Iterable[Voter]) -> VoterSet:
        return cls({voter.key.id: voter for voter in sorted(voters, key=lambda voter: voter.key)})

    @classmethod
    def from_record(cls, record: VotersRecord) -> VoterSet:
        return cls.from_voters(
            Voter(
                ReplicaKey(voter.voter_id, bytes(voter.voter_directory_id)),
                tuple(Endpoint(endpoint.name, endpoint.host, endpoint.port) for endpoint in voter.endpoints),
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
                        raft_records.Endpoint(name=endpoint.name, host=endpoint.host, port=endpoint.port)
                        for endpoint in voter.endpoints
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
        endpoint = find_endpoint(self.endpoints_of(node_id), listener)
        return Node(node_id, endpoint.host, endpoint.port) if endpoint is not None else None

    def needs_update(self, local: Voter) -> bool:
        """Whether the log describes the local voter differently from its own configuration."""
        voter_in_log = self.by_id.get(local.key.id)
        return voter_in_log is not None and voter_in_log.is_replica(local.key) and voter_in_log.differs(local)

    def with_voter(self, voter: Voter) -> VoterSet | None:
        """Return the set with one more voter, or None if its id is taken, even by an older directory."""
        return None if voter.key.id in self.by_id else VoterSet.from_voters([*self, voter])

    def without_voter(self, key: ReplicaKey) -> VoterSet | None:
        """Return the set without a voter, or None if the replica is no voter or the only one."""
        voter = self.by_id.get(key.id)
        if voter is None or voter.key != key or len(self.by_id) == 1:
            return None
        return VoterSet.from_voters(other for other in self if other.key.id != key.id)

    def with_update(self, voter: Voter, *, any_directory: bool = False) -> VoterSet | None:
        """Return the set with a voter replaced, or None if it is no voter.

        Before kraft.version 1 directories are unknown, so `any_directory` matches by id alone.
        """
        current = self.by_id.get(voter.key.id)
        if current is None or not (any_directory or current.is_replica(voter.key)):
            return None
        return VoterSet.from_voters([*(other for other in self if other.key.id != voter.key.id), voter])

    def all_support(self, kraft_version: int) -> bool:
        return all(voter.supported[0] <= kraft_version <= voter.supported[1] for voter in self)
