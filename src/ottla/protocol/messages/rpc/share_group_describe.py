"""ShareGroupDescribe (key 77): the state, the members and the assignments of share groups."""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import ZERO_UUID, Int16, Int32, Uuid


@request(key=ApiKey.SHARE_GROUP_DESCRIBE, versions="1", flexible="1+")
class ShareGroupDescribeRequest:
    group_ids: list[str] = since("1+", factory=list)
    include_authorized_operations: bool = since("1+", default=False)


@struct
class TopicPartitions:
    topic_id: Uuid = since("1+", default=ZERO_UUID)
    topic_name: str = since("1+", default="")
    partitions: list[Int32] = since("1+", factory=list)


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = since("1+", factory=list)


@struct
class Member:
    member_id: str = since("1+", default="")
    rack_id: str | None = since("1+", default=None)
    member_epoch: Int32 = since("1+", default=0)
    client_id: str = since("1+", default="")
    client_host: str = since("1+", default="")
    subscribed_topic_names: list[str] = since("1+", factory=list)
    assignment: Assignment = since("1+", factory=Assignment)


@struct
class DescribedGroup:
    error_code: Int16 = since("1+", default=0)
    error_message: str | None = since("1+", default=None)
    group_id: str = since("1+", default="")
    group_state: str = since("1+", default="")
    group_epoch: Int32 = since("1+", default=0)
    assignment_epoch: Int32 = since("1+", default=0)
    assignor_name: str = since("1+", default="")
    members: list[Member] = since("1+", factory=list)
    authorized_operations: Int32 = since("1+", default=-2_147_483_648)


@response(key=ApiKey.SHARE_GROUP_DESCRIBE, versions="1", flexible="1+")
class ShareGroupDescribeResponse:
    throttle_time_ms: Int32 = since("1+", default=0)
    groups: list[DescribedGroup] = since("1+", factory=list)
