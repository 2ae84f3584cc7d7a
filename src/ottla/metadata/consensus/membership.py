"""Changes of the voters (KIP-853): AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter, and the upgrade to kraft.version 1.

One change at a time, each committed before the next: then majorities of neighbouring sets have a voter in common.
A leader must first have committed something of its own epoch, so that no change of an earlier leader can come back. A
new set counts from its record on, committed or not; a removed leader therefore commits its own removal, then resigns.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ottla.metadata.consensus import replies, requests
from ottla.metadata.consensus.config import METADATA_PARTITION, METADATA_TOPIC
from ottla.metadata.consensus.core import Core
from ottla.metadata.consensus.leading import Leader, Progress, VoterChange
from ottla.metadata.consensus.replication import refuse_to_lead
from ottla.metadata.consensus.states import Follower
from ottla.metadata.consensus.voters import (
    KRAFT_VERSION_FEATURE,
    RECONFIGURABLE,
    Endpoint,
    Endpoints,
    Node,
    ReplicaKey,
    Voter,
    address,
)
from ottla.protocol.errors import (
    NONE,
    ApiError,
    DuplicateVoter,
    InconsistentClusterId,
    InvalidRequest,
    InvalidUpdateVersion,
    NotLeader,
    RequestTimedOut,
    UnsupportedVersion,
    VoterNotFound,
    by_code,
)
from ottla.protocol.messages.records.raft_records import KRaftVersionRecord
from ottla.protocol.messages.rpc import add_raft_voter as adding
from ottla.protocol.messages.rpc import describe_quorum as describing
from ottla.protocol.messages.rpc import remove_raft_voter as removing
from ottla.protocol.messages.rpc import update_raft_voter as updating
from ottla.protocol.messages.rpc.api_versions import ApiVersionsResponse


def on_add(core: Core, ticket: Hashable, request: adding.AddRaftVoterRequest, now_ms: int) -> None:
    try:
        leader = _leading(core, request.cluster_id, core.state.epoch)
        key = ReplicaKey(request.voter_id, bytes(request.voter_directory_id))
        endpoints = _endpoints(request.listeners)
        at = address(endpoints, core.config.listener)
        if key.id < 0 or not any(key.directory):
            raise InvalidRequest("the voter to add has no valid id or directory")
        if at is None:
            raise InvalidRequest(f"the voter to add has no endpoint for the listener {core.config.listener}")
        _may_change(core, leader, now_ms)
        if key.id in core.voters.by_id:
            raise DuplicateVoter(f"{key.id} is one of the voters {sorted(core.voters.by_id)} already")
        if core.peers.ready_at(key.id, now_ms) > now_ms:
            raise RequestTimedOut("a request to the new voter is still under way")
    except ApiError as error:
        core.reply(ticket, adding.AddRaftVoterResponse(error_code=error.code, error_message=error.message))
        return
    request_id = core.send(Node(key.id, at.host, at.port), requests.api_versions(core.config), now_ms)
    leader.change = VoterChange(
        ticket,
        now_ms + core.config.request_timeout_ms,
        Voter(key, endpoints),
        request_id,
        acknowledge_when_committed=request.ack_when_committed,
    )


def on_api_versions_answer(core: Core, request_id: int, answer: ApiVersionsResponse, now_ms: int) -> bool:
    """The new voter told which kraft.versions it can run; if all is well its record is written."""
    leader = core.state
    if not isinstance(leader, Leader) or leader.change is None or leader.change.request_id != request_id:
        return True
    change = leader.change
    assert change.adding is not None
    change.request_id = None
    if answer.error_code != NONE:
        core.finish_change(RequestTimedOut.code, f"the new voter answered {by_code(answer.error_code).name}")
        return False
    found = (key for key in answer.supported_features if key.name == KRAFT_VERSION_FEATURE)
    supported = next(((key.min_version, key.max_version) for key in found), None)
    version = core.history.kraft_version
    if supported is None or not supported[0] <= version <= supported[1]:
        core.finish_change(InvalidRequest.code, f"the new voter does not support {KRAFT_VERSION_FEATURE} {version}")
        return True
    if not leader.is_caught_up(change.adding.key, now_ms):
        core.finish_change(RequestTimedOut.code, "the new voter is lagging behind")
        return True
    voters = core.voters.added(Voter(change.adding.key, change.adding.endpoints, supported))
    assert voters is not None, "changes do not overlap"
    change.last_offset = core.append_control([voters.to_record()], now_ms)
    if not change.acknowledge_when_committed:
        core.reply(change.ticket, adding.AddRaftVoterResponse(error_message=None))
        change.ticket = None
    return True


def on_remove(core: Core, ticket: Hashable, request: removing.RemoveRaftVoterRequest, now_ms: int) -> None:
    try:
        leader = _leading(core, request.cluster_id, core.state.epoch)
        key = ReplicaKey(request.voter_id, bytes(request.voter_directory_id))
        if key.id < 0 or not any(key.directory):
            raise InvalidRequest("the voter to remove has no valid id or directory")
        _may_change(core, leader, now_ms)
        voters = core.voters.removed(key)
        if voters is None:
            raise VoterNotFound(f"{key.id} cannot be removed from the voters {sorted(core.voters.by_id)}")
    except ApiError as error:
        core.reply(ticket, removing.RemoveRaftVoterResponse(error_code=error.code, error_message=error.message))
        return
    last_offset = core.append_control([voters.to_record()], now_ms)
    leader.change = VoterChange(ticket, now_ms + core.config.request_timeout_ms, last_offset=last_offset)


def on_update(
    core: Core, ticket: Hashable, request: updating.UpdateRaftVoterRequest, listener: str, now_ms: int
) -> None:
    """Answered before it is committed. With kraft.version 0 it is only remembered, for the upgrade."""
    error = NONE
    try:
        _update(core, request, now_ms)
    except ApiError as raised:
        error = raised.code
    core.reply(ticket, replies.update_voter(core.known, listener, error))


def _update(core: Core, request: updating.UpdateRaftVoterRequest, now_ms: int) -> None:
    leader = _leading(core, request.cluster_id, request.current_leader_epoch)
    key = ReplicaKey(request.voter_id, bytes(request.voter_directory_id))
    endpoints, feature = _endpoints(request.listeners), request.kraft_version_feature
    lowest, highest = feature.min_supported_version, feature.max_supported_version
    if key.id < 0 or not any(key.directory) or address(endpoints, core.config.listener) is None:
        raise InvalidRequest
    if not 0 <= lowest <= highest:
        raise InvalidRequest
    dynamic = core.history.kraft_version >= RECONFIGURABLE
    _may_change(core, leader, now_ms, static_too=True)
    if not lowest <= core.history.kraft_version <= highest:
        raise InvalidRequest
    voter = Voter(key, endpoints, (lowest, highest))
    if not dynamic:
        if leader.upgrade is None:
            raise RequestTimedOut
        updated = leader.upgrade.updated(voter, any_directory=True)
        if updated is None:
            raise VoterNotFound
        leader.upgrade = updated
        return
    updated = core.voters.updated(voter)
    if updated is None:
        raise VoterNotFound
    core.append_control([updated.to_record()], now_ms)


def upgrade(core: Core, epoch: int, version: int, now_ms: int) -> None:
    """Go to a higher kraft.version: from 1 on the log says who the voters are, so all of them must be known well."""
    leader = core.state
    if not isinstance(leader, Leader) or leader.epoch != epoch:
        raise NotLeader
    current = core.history.kraft_version
    if version == current:
        return
    if version < current:
        raise InvalidUpdateVersion(f"{KRAFT_VERSION_FEATURE} cannot go down from {current} to {version}")
    known = leader.upgrade
    if known is None or not known.support(version) or not all(any(key.directory) for key in known.replicas):
        raise InvalidUpdateVersion(f"not all voters are known to support {KRAFT_VERSION_FEATURE} {version}")
    core.append_control([KRaftVersionRecord(kraft_version=version), known.to_record()], now_ms)
    leader.upgrade = None


def on_update_answer(core: Core, answer: updating.UpdateRaftVoterResponse, now_ms: int) -> bool:
    from_leader = answer.current_leader
    if from_leader is not None and from_leader.leader_epoch > core.state.epoch:
        at = (Endpoint(core.config.listener, from_leader.host, from_leader.port),) if from_leader.host else ()
        known = at or core.voters.endpoints_of(from_leader.leader_id)
        core.discover(replies.Known(max(from_leader.leader_id, -1), from_leader.leader_epoch, known), now_ms)
        return True
    if answer.error_code in (NONE, UnsupportedVersion.code) and isinstance(core.state, Follower):
        core.state.has_updated_leader = True
        core.state.has_fetched = True
        core.state.fetch_deadline = now_ms + core.config.fetch_timeout_ms
        return True
    return False


def on_join_answer(
    core: Core, answer: adding.AddRaftVoterResponse | removing.RemoveRaftVoterResponse, now_ms: int
) -> bool:
    """An auto-join went through, or cannot now: either way it is tried again only after a while."""
    fine = (NONE, RequestTimedOut.code, DuplicateVoter.code, VoterNotFound.code)
    if answer.error_code in fine and isinstance(core.state, Follower):
        core.state.update_voter_at = now_ms + core.config.fetch_timeout_ms
        return True
    return False


def on_describe(
    core: Core, ticket: Hashable, request: describing.DescribeQuorumRequest, version: int, now_ms: int
) -> None:
    topics = request.topics
    ours = (
        len(topics) == 1
        and topics[0].topic_name == METADATA_TOPIC
        and [partition.partition_index for partition in topics[0].partitions] == [METADATA_PARTITION]
    )
    leader = core.state
    if not ours or not isinstance(leader, Leader):
        core.reply(ticket, replies.describe_not_leading(request, ours=ours))
        return
    voters = list(leader.voters.values())
    partition = describing.ResponsePartitionData(
        partition_index=METADATA_PARTITION,
        leader_id=leader.leader_id,
        leader_epoch=leader.epoch,
        high_watermark=-1 if leader.high_watermark is None else leader.high_watermark,
        current_voters=[_described(core, progress, version, now_ms) for progress in voters],
        observers=[_described(core, progress, version, now_ms) for progress in leader.active_observers(now_ms)],
    )
    core.reply(
        ticket,
        describing.DescribeQuorumResponse(
            topics=[describing.ResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
            nodes=[_listening(progress) for progress in voters] if version >= 2 else [],
        ),
    )


def _described(core: Core, progress: Progress, version: int, now_ms: int) -> describing.ReplicaState:
    own = progress.key.id == core.config.local.id
    return describing.ReplicaState(
        replica_id=progress.key.id,
        replica_directory_id=progress.key.directory if version >= 2 else bytes(16),
        log_end_offset=core.log.end_offset if own else progress.end_offset,
        last_fetch_timestamp=now_ms if own else progress.last_fetch_ms,
        last_caught_up_timestamp=now_ms if own else progress.last_caught_up_ms,
    )


def _listening(progress: Progress) -> describing.Node:
    listeners = [describing.Listener(name=at.name, host=at.host, port=at.port) for at in progress.endpoints]
    return describing.Node(node_id=progress.key.id, listeners=listeners)


def _leading(core: Core, cluster_id: str | None, epoch: int) -> Leader:
    if cluster_id is not None and cluster_id != core.config.cluster_id:
        raise InconsistentClusterId(f"this is cluster {core.config.cluster_id}, not {cluster_id}")
    error = refuse_to_lead(core, epoch)
    if error:
        raise by_code(error)
    assert isinstance(core.state, Leader)
    return core.state


def _may_change(core: Core, leader: Leader, now_ms: int, *, static_too: bool = False) -> None:
    """What must hold before any change of voters; asking too early is answered as a time-out, to be tried again."""
    expire_change(core, now_ms)
    if leader.change is not None:
        raise RequestTimedOut("another change of voters is under way")
    if leader.high_watermark is None:
        raise RequestTimedOut("the leader has not committed anything yet, and so not fenced earlier changes")
    if core.history.kraft_version < RECONFIGURABLE:
        if static_too:
            return
        raise UnsupportedVersion(f"voters cannot change with {KRAFT_VERSION_FEATURE} {core.history.kraft_version}")
    written = core.history.voters_offset
    if written is None or written >= leader.high_watermark:
        raise RequestTimedOut(f"the last change of voters, at {written}, is not committed yet")


def expire_change(core: Core, now_ms: int) -> None:
    if isinstance(core.state, Leader) and core.state.change is not None and core.state.change.deadline <= now_ms:
        core.finish_change(RequestTimedOut.code)


def _endpoints(listeners: Sequence[adding.Listener] | Sequence[updating.Listener]) -> Endpoints:
    return tuple(Endpoint(at.name, at.host, at.port) for at in listeners)
