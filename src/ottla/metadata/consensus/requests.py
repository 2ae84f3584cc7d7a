"""Requests that a quorum member sends about the metadata partition."""

from collections.abc import Sequence

from ottla.metadata.consensus.config import METADATA_PARTITION, METADATA_TOPIC, METADATA_TOPIC_ID, ConsensusConfig
from ottla.metadata.consensus.log_view import LogView, OffsetAndEpoch
from ottla.metadata.consensus.voters import ReplicaKey
from ottla.protocol.messages.rpc import add_raft_voter as adding
from ottla.protocol.messages.rpc import begin_quorum_epoch as beginning
from ottla.protocol.messages.rpc import end_quorum_epoch as ending
from ottla.protocol.messages.rpc import fetch as fetching
from ottla.protocol.messages.rpc import fetch_snapshot as snapshots
from ottla.protocol.messages.rpc import remove_raft_voter as removing
from ottla.protocol.messages.rpc import update_raft_voter as updating
from ottla.protocol.messages.rpc import vote as voting
from ottla.protocol.messages.rpc.api_versions import ApiVersionsRequest


def vote(config: ConsensusConfig, log: LogView, epoch: int, voter: ReplicaKey, *, pre_vote: bool) -> voting.VoteRequest:
    """Return a Vote for a voter's id and directory, so that no other replica at the same address grants it."""
    partition = voting.PartitionData(
        partition_index=METADATA_PARTITION,
        replica_epoch=epoch,
        replica_id=config.local.id,
        replica_directory_id=config.local.directory,
        voter_directory_id=voter.directory,
        last_offset_epoch=log.last_epoch,
        last_offset=log.end_offset,
        pre_vote=pre_vote,
    )
    topic = voting.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return voting.VoteRequest(cluster_id=config.cluster_id, voter_id=voter.id, topics=[topic])


def begin_epoch(config: ConsensusConfig, epoch: int, voter: ReplicaKey) -> beginning.BeginQuorumEpochRequest:
    partition = beginning.PartitionData(
        partition_index=METADATA_PARTITION,
        voter_directory_id=voter.directory,
        leader_id=config.local.id,
        leader_epoch=epoch,
    )
    return beginning.BeginQuorumEpochRequest(
        cluster_id=config.cluster_id,
        voter_id=voter.id,
        topics=[beginning.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[
            beginning.LeaderEndpoint(name=endpoint.name, host=endpoint.host, port=endpoint.port)
            for endpoint in config.endpoints
        ],
    )


def end_epoch(config: ConsensusConfig, epoch: int, successors: Sequence[ReplicaKey]) -> ending.EndQuorumEpochRequest:
    partition = ending.PartitionData(
        partition_index=METADATA_PARTITION,
        leader_id=config.local.id,
        leader_epoch=epoch,
        preferred_successors=[key.id for key in successors],
        preferred_candidates=[
            ending.ReplicaInfo(candidate_id=key.id, candidate_directory_id=key.directory) for key in successors
        ],
    )
    topic = ending.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    return ending.EndQuorumEpochRequest(cluster_id=config.cluster_id, topics=[topic])


def fetch(
    config: ConsensusConfig, log: LogView, epoch: int, high_watermark: int | None, *, max_wait_ms: int
) -> fetching.FetchRequest:
    partition = fetching.FetchPartition(
        partition=METADATA_PARTITION,
        current_leader_epoch=epoch,
        fetch_offset=log.end_offset,
        last_fetched_epoch=log.last_epoch,
        replica_directory_id=config.local.directory,
        high_watermark=-1 if high_watermark is None else high_watermark,
    )
    return fetching.FetchRequest(
        replica_id=config.local.id,
        replica_state=fetching.ReplicaState(replica_id=config.local.id),
        cluster_id=config.cluster_id,
        max_wait_ms=max_wait_ms,
        max_bytes=config.fetch_max_bytes,
        topics=[fetching.FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


def fetch_snapshot(
    config: ConsensusConfig, epoch: int, snapshot: OffsetAndEpoch, position: int
) -> snapshots.FetchSnapshotRequest:
    partition = snapshots.PartitionSnapshot(
        partition=METADATA_PARTITION,
        current_leader_epoch=epoch,
        snapshot_id=snapshots.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
        position=position,
        replica_directory_id=config.local.directory,
    )
    return snapshots.FetchSnapshotRequest(
        cluster_id=config.cluster_id,
        replica_id=config.local.id,
        max_bytes=config.fetch_snapshot_max_bytes,
        topics=[snapshots.TopicSnapshot(name=METADATA_TOPIC, partitions=[partition])],
    )


def update_voter(config: ConsensusConfig, epoch: int) -> updating.UpdateRaftVoterRequest:
    """Return the request that corrects this voter's endpoints and kraft.versions in the log."""
    lowest, highest = config.supported_kraft_versions
    return updating.UpdateRaftVoterRequest(
        cluster_id=config.cluster_id,
        current_leader_epoch=epoch,
        voter_id=config.local.id,
        voter_directory_id=config.local.directory,
        listeners=[
            updating.Listener(name=endpoint.name, host=endpoint.host, port=endpoint.port)
            for endpoint in config.endpoints
        ],
        kraft_version_feature=updating.KRaftVersionFeature(min_supported_version=lowest, max_supported_version=highest),
    )


def add_voter(config: ConsensusConfig) -> adding.AddRaftVoterRequest:
    """Return the request to become a voter.

    The leader answers before the commit, because the commit may need this node's fetches.
    """
    return adding.AddRaftVoterRequest(
        cluster_id=config.cluster_id,
        timeout_ms=config.request_timeout_ms,
        voter_id=config.local.id,
        voter_directory_id=config.local.directory,
        listeners=[
            adding.Listener(name=endpoint.name, host=endpoint.host, port=endpoint.port) for endpoint in config.endpoints
        ],
        ack_when_committed=False,
    )


def remove_voter(config: ConsensusConfig, voter: ReplicaKey) -> removing.RemoveRaftVoterRequest:
    return removing.RemoveRaftVoterRequest(
        cluster_id=config.cluster_id, voter_id=voter.id, voter_directory_id=voter.directory
    )


def api_versions(config: ConsensusConfig) -> ApiVersionsRequest:
    return ApiVersionsRequest(
        client_software_name=config.software_name, client_software_version=config.software_version
    )
