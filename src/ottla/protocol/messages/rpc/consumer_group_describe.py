"""ConsumerGroupDescribe (key 69): the state, the members and the assignments of consumer groups.

v1 distinguishes classic members (KIP-1099).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import ZERO_UUID, Int8, Int16, Int32, Uuid


@request(key=ApiKey.CONSUMER_GROUP_DESCRIBE, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest:
    group_ids: list[str] = since("0+", factory=list)
    include_authorized_operations: bool = since("0+", default=False)


@struct
class TopicPartitions:
    topic_id: Uuid = since("0+", default=ZERO_UUID)
    topic_name: str = since("0+", default="")
    partitions: list[Int32] = since("0+", factory=list)


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = since("0+", factory=list)


@struct
class Member:
    member_id: str = since("0+", default="")
    instance_id: str | None = since("0+", default=None)
    rack_id: str | None = since("0+", default=None)
    member_epoch: Int32 = since("0+", default=0)
    client_id: str = since("0+", default="")
    client_host: str = since("0+", default="")
    subscribed_topic_names: list[str] = since("0+", factory=list)
    subscribed_topic_regex: str | None = since("0+", default=None)
    assignment: Assignment = since("0+", factory=Assignment)
    target_assignment: Assignment = since("0+", factory=Assignment)
    member_type: Int8 = since("1+", default=-1)


@struct
class DescribedGroup:
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("0+", default=None)
    group_id: str = since("0+", default="")
    group_state: str = since("0+", default="")
    group_epoch: Int32 = since("0+", default=0)
    assignment_epoch: Int32 = since("0+", default=0)
    assignor_name: str = since("0+", default="")
    members: list[Member] = since("0+", factory=list)
    authorized_operations: Int32 = since("0+", default=-2_147_483_648)


@response(key=ApiKey.CONSUMER_GROUP_DESCRIBE, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    groups: list[DescribedGroup] = since("0+", factory=list)
