"""Records of `__consumer_offsets`: share groups (KIP-932)."""

from ottla.protocol.wire.declare import since, stored, struct
from ottla.protocol.wire.types import ZERO_UUID, Int8, Int32, Int64, Uuid


@stored(key=10, versions="0")
class ShareGroupMemberMetadataKey:
    """Key of a share group's member."""

    group_id: str = since("0+", default="")
    member_id: str = since("0+", default="")


@stored(key=10, versions="0", flexible="0+")
class ShareGroupMemberMetadataValue:
    """A member of a share group: its client and its subscription."""

    rack_id: str | None = since("0+", default="")
    client_id: str = since("0+", default="")
    client_host: str = since("0+", default="")
    subscribed_topic_names: list[str] = since("0+", factory=list)


@stored(key=11, versions="0")
class ShareGroupMetadataKey:
    """Key of a share group's epoch."""

    group_id: str = since("0+", default="")


@stored(key=11, versions="0", flexible="0+")
class ShareGroupMetadataValue:
    """The epoch of a share group, and a hash of the topics it was made for."""

    epoch: Int32 = since("0+", default=0)
    metadata_hash: Int64 = since("0+", default=0)


@stored(key=12, versions="0")
class ShareGroupTargetAssignmentMetadataKey:
    """Key of the epoch of a share group's target assignment."""

    group_id: str = since("0+", default="")


@stored(key=12, versions="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    """The epoch of a share group's target assignment, and when it was made."""

    assignment_epoch: Int32 = since("0+", default=0)
    assignment_timestamp: Int64 = since("0+", default=0, tag=0)


@stored(key=13, versions="0")
class ShareGroupTargetAssignmentMemberKey:
    """Key of what one member of a share group should read."""

    group_id: str = since("0+", default="")
    member_id: str = since("0+", default="")


@struct
class TopicPartition:
    topic_id: Uuid = since("0+", default=ZERO_UUID)
    partitions: list[Int32] = since("0+", factory=list)


@stored(key=13, versions="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    """The partitions that one member of a share group should read."""

    topic_partitions: list[TopicPartition] = since("0+", factory=list)


@stored(key=14, versions="0")
class ShareGroupCurrentMemberAssignmentKey:
    """Key of what one member of a share group reads now."""

    group_id: str = since("0+", default="")
    member_id: str = since("0+", default="")


@struct
class TopicPartitions:
    topic_id: Uuid = since("0+", default=ZERO_UUID)
    partitions: list[Int32] = since("0+", factory=list)


@stored(key=14, versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    """The partitions that a share group's member reads now, and its epoch."""

    member_epoch: Int32 = since("0+", default=0)
    previous_member_epoch: Int32 = since("0+", default=0)
    state: Int8 = since("0+", default=0)
    assigned_partitions: list[TopicPartitions] = since("0+", factory=list)


@stored(key=15, versions="0")
class ShareGroupStatePartitionMetadataKey:
    """Key of the share partitions whose state a share group keeps."""

    group_id: str = since("0+", default="")


@struct
class TopicPartitionsInfo:
    topic_id: Uuid = since("0+", default=ZERO_UUID)
    topic_name: str = since("0+", default="")
    partitions: list[Int32] = since("0+", factory=list)


@struct
class TopicInfo:
    topic_id: Uuid = since("0+", default=ZERO_UUID)
    topic_name: str = since("0+", default="")


@stored(key=15, versions="0", flexible="0+")
class ShareGroupStatePartitionMetadataValue:
    """The share partitions whose state is being set up, is there, or is being deleted."""

    initializing_topics: list[TopicPartitionsInfo] = since("0+", factory=list)
    initialized_topics: list[TopicPartitionsInfo] = since("0+", factory=list)
    deleting_topics: list[TopicInfo] = since("0+", factory=list)


SHARE_GROUP_RECORDS: dict[int, tuple[type, type]] = {
    10: (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
    11: (ShareGroupMetadataKey, ShareGroupMetadataValue),
    12: (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
    13: (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
    14: (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
    15: (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
}
"""Key and value by the type that a record's key begins with."""
