"""RemoveRaftVoter (key 81): remove a controller from the voters of the Raft quorum."""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since
from ottla.protocol.wire.types import ZERO_UUID, Int16, Int32, Uuid


@request(key=ApiKey.REMOVE_RAFT_VOTER, versions="0", flexible="0+")
class RemoveRaftVoterRequest:
    cluster_id: str | None = since("0+", default="")
    voter_id: Int32 = since("0+", default=0)
    voter_directory_id: Uuid = since("0+", default=ZERO_UUID)


@response(key=ApiKey.REMOVE_RAFT_VOTER, versions="0", flexible="0+")
class RemoveRaftVoterResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("0+", default="")
