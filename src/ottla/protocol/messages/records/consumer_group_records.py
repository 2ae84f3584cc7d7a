"""Records of `__consumer_offsets`: groups of the consumer protocol (KIP-848)."""

from ottla.protocol.wire.declare import since, stored, struct
from ottla.protocol.wire.types import ZERO_UUID, Int8, Int32, Int64, Uuid


@stored(key=3, versions="0")
class ConsumerGroupMetadataKey:
    """Key of a consumer group's epoch."""

    group_id: str = since("0+", default="")


@stored(key=3, versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    """The epoch of a consumer group, and a hash of the metadata that it belongs to."""

    epoch: Int32 = since("0+", default=0)
    metadata_hash: Int64 = since("0+", default=0, tag=0)


@stored(key=4, versions="0")
class ConsumerGroupPartitionMetadataKey:
    """Key of the topics that a consumer group reads; replaced by a hash."""

    group_id: str = since("0+", default="")


@struct
class PartitionMetadata:
    partition: Int32 = since("0+", default=0)
    racks: list[str] = since("0+", factory=list)


@struct
class TopicMetadata:
    topic_id: Uuid = since("0+", default=ZERO_UUID)
    topic_name: str = since("0+", default="")
    num_partitions: Int32 = since("0+", default=0)
    partition_metadata: list[PartitionMetadata] = since("0+", factory=list)


@stored(key=4, versions="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue:
    """The metadata of the topics that a consumer group reads; replaced by a hash."""

    topics: list[TopicMetadata] = since("0+", factory=list)


@stored(key=5, versions="0")
class ConsumerGroupMemberMetadataKey:
    """Key of a consumer group's member."""

    group_id: str = since("0+", default="")
    member_id: str = since("0+", default="")


@struct
class ClassicProtocol:
    name: str = since("0+", default="")
    metadata: bytes = since("0+", default=b"")


@struct
class ClassicMemberMetadata:
    session_timeout_ms: Int32 = since("0+", default=0)
    supported_protocols: list[ClassicProtocol] = since("0+", factory=list)


@stored(key=5, versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    """A member of a consumer group: its client, its subscription and its timeouts."""

    instance_id: str | None = since("0+", default="")
    rack_id: str | None = since("0+", default="")
    client_id: str = since("0+", default="")
    client_host: str = since("0+", default="")
    subscribed_topic_names: list[str] = since("0+", factory=list)
    subscribed_topic_regex: str | None = since("0+", default="")
    rebalance_timeout_ms: Int32 = since("0+", default=-1)
    server_assignor: str | None = since("0+", default="")
    classic_member_metadata: ClassicMemberMetadata | None = since(
        "0+", factory=ClassicMemberMetadata, nullable="0+", tag=0
    )


@stored(key=6, versions="0")
class ConsumerGroupTargetAssignmentMetadataKey:
    """Key of the epoch of a consumer group's target assignment."""

    group_id: str = since("0+", default="")


@stored(key=6, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    """The epoch of a consumer group's target assignment, and its time."""

    assignment_epoch: Int32 = since("0+", default=0)
    assignment_timestamp: Int64 = since("0+", default=0, tag=0)


@stored(key=7, versions="0")
class ConsumerGroupTargetAssignmentMemberKey:
    """Key of the target assignment of one member of a consumer group."""

    group_id: str = since("0+", default="")
    member_id: str = since("0+", default="")


@struct
class TopicPartition:
    topic_id: Uuid = since("0+", default=ZERO_UUID)
    partitions: list[Int32] = since("0+", factory=list)


@stored(key=7, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    """The target assignment of one member of a consumer group."""

    topic_partitions: list[TopicPartition] = since("0+", factory=list)


@stored(key=8, versions="0")
class ConsumerGroupCurrentMemberAssignmentKey:
    """Key of the current assignment of one member of a consumer group."""

    group_id: str = since("0+", default="")
    member_id: str = since("0+", default="")


@struct
class TopicPartitions:
    topic_id: Uuid = since("0+", default=ZERO_UUID)
    partitions: list[Int32] = since("0+", factory=list)
    assignment_epochs: list[Int32] | None = since("0+", factory=list, tag=0)


@stored(key=8, versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    """The partitions that a consumer group's member reads or must revoke, and its epoch."""

    member_epoch: Int32 = since("0+", default=0)
    previous_member_epoch: Int32 = since("0+", default=0)
    state: Int8 = since("0+", default=0)
    assigned_partitions: list[TopicPartitions] = since("0+", factory=list)
    partitions_pending_revocation: list[TopicPartitions] = since("0+", factory=list)


@stored(key=16, versions="0")
class ConsumerGroupRegularExpressionKey:
    """Key of a regular expression that a consumer group subscribes to."""

    group_id: str = since("0+", default="")
    regular_expression: str = since("0+", default="")


@stored(key=16, versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    """The topics that a consumer group's regular expression matched, and when."""

    topics: list[str] = since("0+", factory=list)
    version: Int64 = since("0+", default=0)
    timestamp: Int64 = since("0+", default=0)


CONSUMER_GROUP_RECORDS: dict[int, tuple[type, type]] = {
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}
"""The classes of key and value, by the type at the start of a record's key."""
