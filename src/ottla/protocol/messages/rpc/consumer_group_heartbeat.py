"""ConsumerGroupHeartbeat (key 68): a member joins, stays in or leaves a consumer group, and gets its partitions.

v1 subscription by regular expression (KIP-848); the member makes its own id (KIP-1082).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import ZERO_UUID, Int16, Int32, Uuid


@struct
class TopicPartitions:
    topic_id: Uuid = since("0+", default=ZERO_UUID)
    partitions: list[Int32] = since("0+", factory=list)


@request(key=ApiKey.CONSUMER_GROUP_HEARTBEAT, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    group_id: str = since("0+", default="")
    member_id: str = since("0+", default="")
    member_epoch: Int32 = since("0+", default=0)
    instance_id: str | None = since("0+", default=None)
    rack_id: str | None = since("0+", default=None)
    rebalance_timeout_ms: Int32 = since("0+", default=-1)
    subscribed_topic_names: list[str] | None = since("0+", default=None)
    subscribed_topic_regex: str | None = since("1+", default=None)
    server_assignor: str | None = since("0+", default=None)
    topic_partitions: list[TopicPartitions] | None = since("0+", default=None)


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = since("0+", factory=list)


@response(key=ApiKey.CONSUMER_GROUP_HEARTBEAT, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("0+", default=None)
    member_id: str | None = since("0+", default=None)
    member_epoch: Int32 = since("0+", default=0)
    heartbeat_interval_ms: Int32 = since("0+", default=0)
    assignment: Assignment | None = since("0+", default=None)
