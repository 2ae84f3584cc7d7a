"""UpdateRaftVoter (key 82): a voter sends the quorum leader its endpoints and its supported kraft.version."""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import ZERO_UUID, Int16, Int32, UInt16, Uuid


@struct
class Listener:
    name: str = since("0+", default="")
    host: str = since("0+", default="")
    port: UInt16 = since("0+", default=0)


@struct
class KRaftVersionFeature:
    min_supported_version: Int16 = since("0+", default=0)
    max_supported_version: Int16 = since("0+", default=0)


@request(key=ApiKey.UPDATE_RAFT_VOTER, versions="0", flexible="0+")
class UpdateRaftVoterRequest:
    cluster_id: str | None = since("0+", default="")
    current_leader_epoch: Int32 = since("0+", default=0)
    voter_id: Int32 = since("0+", default=0)
    voter_directory_id: Uuid = since("0+", default=ZERO_UUID)
    listeners: list[Listener] = since("0+", factory=list)
    kraft_version_feature: KRaftVersionFeature = since("0+", factory=KRaftVersionFeature)


@struct
class CurrentLeader:
    leader_id: Int32 = since("0+", default=-1)
    leader_epoch: Int32 = since("0+", default=-1)
    host: str = since("0+", default="")
    port: Int32 = since("0+", default=0)


@response(key=ApiKey.UPDATE_RAFT_VOTER, versions="0", flexible="0+")
class UpdateRaftVoterResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    current_leader: CurrentLeader | None = since("0+", default=None, tag=0)
