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
    """The epoch of a share group, and a hash of the metadata that it belongs to."""

    epoch: Int32 = since("0+", default=0)
    metadata_hash: Int64 = since("0+", default=0)


@stored(key=12, versions="0")
class ShareGroupTargetAssignmentMetadataKey:
    """Key of the epoch of a share group's target assignment."""

    group_id: str = since("0+", default="")


@stored(key=12, versions="0", flexible="0+")
class ShareGroupTargetAssignmentMetadataValue:
    """The epoch of a share group's target assignment, and its time."""

    assignment_epoch: Int32 = since("0+", default=0)
    assignment_timestamp: Int64 = since("0+", default=0, tag=0)


@stored(key=13, versions="0")
class ShareGroupTargetAssignmentMemberKey:
    """Key of the target assignment of one member of a share group."""

    group_id: str = since("0+", default="")
    member_id: str = since("0+", default="")


@struct
class TopicPartition:
    topic_id: Uuid = since("0+", default=ZERO_UUID)
    partitions: list[Int32] = since("0+", factory=list)


@stored(key=13, versions="0", flexible="0+")
class ShareGroupTargetAssignmentMemberValue:
    """The target assignment of one member of a share group."""

    topic_partitions: list[TopicPartition] = since("0+", factory=list)


@stored(key=14, versions="0")
class ShareGroupCurrentMemberAssignmentKey:
    """Key of the current assignment of one member of a share group."""

    group_id: str = since("0+", default="")
    member_id: str = since("0+", default="")


@struct
class TopicPartitions:
    topic_id: Uuid = since("0+", default=ZERO_UUID)
    partitions: list[Int32] = since("0+", factory=list)


@stored(key=14, versions="0", flexible="0+")
class ShareGroupCurrentMemberAssignmentValue:
    """The partitions that a share group's member reads, and its epoch."""

    member_epoch: Int32 = since("0+", default=0)
    previous_member_epoch: Int32 = since("0+", default=0)
    state: Int8 = since("0+", default=0)
    assigned_partitions: list[TopicPartitions] = since("0+", factory=list)


@stored(key=15, versions="0")
class ShareGroupStatePartitionMetadataKey:
    """Key of the share partitions of a share group, by the state of their initialization."""

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
    """The share partitions of a group that are being initialized, are initialized, or are being deleted."""

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
"""The classes of key and value, by the type at the start of a record's key."""
