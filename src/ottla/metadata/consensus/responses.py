"""Responses of a quorum member, and the leader that the responses of others name.

Every response names the leader and epoch that its sender knows. From the versions of KIP-853 on it also has the
leader's endpoint, for the listener on which the request arrived.
"""

from typing import Any, NamedTuple

from ottla.metadata.consensus.config import METADATA_PARTITION, METADATA_TOPIC, METADATA_TOPIC_ID
from ottla.metadata.consensus.log_view import OffsetValidity, ValidatedOffset
from ottla.metadata.consensus.voters import Endpoint, Endpoints, find_endpoint
from ottla.protocol.errors import NONE, NotLeader, UnknownTopicOrPartition
from ottla.protocol.messages.rpc import begin_quorum_epoch as beginning
from ottla.protocol.messages.rpc import describe_quorum as describing
from ottla.protocol.messages.rpc import end_quorum_epoch as ending
from ottla.protocol.messages.rpc import fetch as fetching
from ottla.protocol.messages.rpc import fetch_snapshot as snapshots
from ottla.protocol.messages.rpc import update_raft_voter as updating
from ottla.protocol.messages.rpc import vote as voting
from ottla.protocol.wire.types import Records


class LeaderAndEpoch(NamedTuple):
    """A leader and its epoch, as one node knows them. A `leader_id` of -1 means that no leader is known."""

    leader_id: int
    epoch: int
    endpoints: Endpoints = ()

    def endpoint(self, listener: str) -> Endpoint | None:
        return find_endpoint(self.endpoints, listener) if self.leader_id >= 0 else None


def vote(leader: LeaderAndEpoch, version: int, listener: str, error: int, *, granted: bool) -> voting.VoteResponse:
    partition = voting.ResponsePartitionData(
        partition_index=METADATA_PARTITION,
        error_code=error,
        leader_id=leader.leader_id,
        leader_epoch=leader.epoch,
        vote_granted=granted,
    )
    return voting.VoteResponse(
        topics=[voting.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=_endpoints(voting.NodeEndpoint, leader, listener) if version >= 1 else [],
    )


def begin_epoch(leader: LeaderAndEpoch, version: int, listener: str, error: int) -> beginning.BeginQuorumEpochResponse:
    partition = beginning.ResponsePartitionData(
        partition_index=METADATA_PARTITION, error_code=error, leader_id=leader.leader_id, leader_epoch=leader.epoch
    )
    return beginning.BeginQuorumEpochResponse(
        topics=[beginning.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=_endpoints(beginning.NodeEndpoint, leader, listener) if version >= 1 else [],
    )


def end_epoch(leader: LeaderAndEpoch, version: int, listener: str, error: int) -> ending.EndQuorumEpochResponse:
    partition = ending.ResponsePartitionData(
        partition_index=METADATA_PARTITION, error_code=error, leader_id=leader.leader_id, leader_epoch=leader.epoch
    )
    return ending.EndQuorumEpochResponse(
        topics=[ending.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        node_endpoints=_endpoints(ending.NodeEndpoint, leader, listener) if version >= 1 else [],
    )


def fetch(
    leader: LeaderAndEpoch,
    version: int,
    listener: str,
    *,
    error: int = NONE,
    records: Records = b"",
    validity: ValidatedOffset | None = None,
    high_watermark: int | None = None,
    log_start_offset: int,
) -> fetching.FetchResponse:
    partition = fetching.PartitionData(
        partition_index=METADATA_PARTITION,
        error_code=error,
        high_watermark=-1 if high_watermark is None else high_watermark,
        log_start_offset=log_start_offset,
        records=records,
        current_leader=fetching.LeaderIdAndEpoch(leader_id=leader.leader_id, leader_epoch=leader.epoch),
    )
    if validity is not None and validity.kind is OffsetValidity.DIVERGING:
        partition.diverging_epoch = fetching.EpochEndOffset(
            epoch=validity.offset_and_epoch.epoch, end_offset=validity.offset_and_epoch.offset
        )
    if validity is not None and validity.kind is OffsetValidity.SNAPSHOT:
        partition.snapshot_id = fetching.SnapshotId(
            epoch=validity.offset_and_epoch.epoch, end_offset=validity.offset_and_epoch.offset
        )
    topic = fetching.FetchableTopicResponse(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
    return fetching.FetchResponse(
        responses=[topic],
        node_endpoints=_endpoints(fetching.NodeEndpoint, leader, listener) if version >= 17 else [],
    )


def fetch_snapshot(
    leader: LeaderAndEpoch,
    version: int,
    listener: str,
    partition: snapshots.ResponsePartitionSnapshot,
    topic: str = METADATA_TOPIC,
) -> snapshots.FetchSnapshotResponse:
    if topic == METADATA_TOPIC:
        partition.current_leader = snapshots.LeaderIdAndEpoch(leader_id=leader.leader_id, leader_epoch=leader.epoch)
    return snapshots.FetchSnapshotResponse(
        topics=[snapshots.ResponseTopicSnapshot(name=topic, partitions=[partition])],
        node_endpoints=_endpoints(snapshots.NodeEndpoint, leader, listener) if version >= 1 else [],
    )


def update_voter(leader: LeaderAndEpoch, listener: str, error: int) -> updating.UpdateRaftVoterResponse:
    endpoint = leader.endpoint(listener)
    return updating.UpdateRaftVoterResponse(
        error_code=error,
        current_leader=updating.CurrentLeader(
            leader_id=leader.leader_id,
            leader_epoch=leader.epoch,
            host=endpoint.host if endpoint is not None else "",
            port=endpoint.port if endpoint is not None else 0,
        ),
    )


def describe_quorum_error(
    request: describing.DescribeQuorumRequest, *, is_metadata: bool
) -> describing.DescribeQuorumResponse:
    """Return the error of a node that does not lead, or of a request for other partitions."""
    error = NotLeader if is_metadata else UnknownTopicOrPartition
    return describing.DescribeQuorumResponse(
        topics=[
            describing.ResponseTopicData(
                topic_name=topic.topic_name,
                partitions=[
                    describing.ResponsePartitionData(
                        partition_index=partition.partition_index, error_code=error.code, error_message=error().message
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def read_leader(response: Any, voters_endpoints: Any, listener: str) -> tuple[int, LeaderAndEpoch] | None:
    """Return the error code and the leader of a Vote, Begin- or EndQuorumEpoch, Fetch or FetchSnapshot response.

    Return None if the response is not about the metadata partition. Old versions have no leader endpoint; the leader is
    then one of the voters.
    """
    topics: Any = response.responses if isinstance(response, fetching.FetchResponse) else response.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    partition = topics[0].partitions[0]
    if isinstance(response, fetching.FetchResponse | snapshots.FetchSnapshotResponse):
        current = partition.current_leader
        leader_id = current.leader_id if current is not None else -1
        epoch = current.leader_epoch if current is not None else -1
    else:
        leader_id, epoch = partition.leader_id, partition.leader_epoch
    leader_id = max(leader_id, -1)
    endpoint = next((node for node in response.node_endpoints if node.node_id == leader_id), None)
    endpoints = (
        (Endpoint(listener, endpoint.host, endpoint.port),) if endpoint is not None else voters_endpoints(leader_id)
    )
    return partition.error_code, LeaderAndEpoch(leader_id, epoch, endpoints)


def _endpoints(kind: Any, leader: LeaderAndEpoch, listener: str) -> list[Any]:
    endpoint = leader.endpoint(listener)
    return [kind(node_id=leader.leader_id, host=endpoint.host, port=endpoint.port)] if endpoint is not None else []
