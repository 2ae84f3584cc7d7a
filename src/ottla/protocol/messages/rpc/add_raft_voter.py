"""AddRaftVoter (key 80): add a controller to the voters of the Raft quorum.

v1 can respond before the change is committed (KIP-1186).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import ZERO_UUID, Int16, Int32, UInt16, Uuid


@struct
class Listener:
    name: str = since("0+", default="")
    host: str = since("0+", default="")
    port: UInt16 = since("0+", default=0)


@request(key=ApiKey.ADD_RAFT_VOTER, versions="0-1", flexible="0+")
class AddRaftVoterRequest:
    cluster_id: str | None = since("0+", default="")
    timeout_ms: Int32 = since("0+", default=0)
    voter_id: Int32 = since("0+", default=0)
    voter_directory_id: Uuid = since("0+", default=ZERO_UUID)
    listeners: list[Listener] = since("0+", factory=list)
    ack_when_committed: bool = since("1+", default=True)


@response(key=ApiKey.ADD_RAFT_VOTER, versions="0-1", flexible="0+")
class AddRaftVoterResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("0+", default="")
