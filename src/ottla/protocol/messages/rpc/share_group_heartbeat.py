"""ShareGroupHeartbeat (key 76): a member joins, stays in or leaves a share group, and gets its partitions."""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import ZERO_UUID, Int16, Int32, Uuid


@request(key=ApiKey.SHARE_GROUP_HEARTBEAT, versions="1", flexible="1+")
class ShareGroupHeartbeatRequest:
    group_id: str = since("1+", default="")
    member_id: str = since("1+", default="")
    member_epoch: Int32 = since("1+", default=0)
    rack_id: str | None = since("1+", default=None)
    subscribed_topic_names: list[str] | None = since("1+", default=None)


@struct
class TopicPartitions:
    topic_id: Uuid = since("1+", default=ZERO_UUID)
    partitions: list[Int32] = since("1+", factory=list)


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = since("1+", factory=list)


@response(key=ApiKey.SHARE_GROUP_HEARTBEAT, versions="1", flexible="1+")
class ShareGroupHeartbeatResponse:
    throttle_time_ms: Int32 = since("1+", default=0)
    error_code: Int16 = since("1+", default=0)
    error_message: str | None = since("1+", default=None)
    member_id: str | None = since("1+", default=None)
    member_epoch: Int32 = since("1+", default=0)
    heartbeat_interval_ms: Int32 = since("1+", default=0)
    assignment: Assignment | None = since("1+", default=None)
