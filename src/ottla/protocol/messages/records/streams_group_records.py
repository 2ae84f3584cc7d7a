"""Records of `__consumer_offsets`: streams groups (KIP-1071)."""

from ottla.protocol.wire.declare import since, stored, struct
from ottla.protocol.wire.types import Int8, Int16, Int32, Int64, UInt16


@stored(key=17, versions="0")
class StreamsGroupMetadataKey:
    """Key of a streams group's epoch."""

    group_id: str = since("0+", default="")


@struct
class LastAssignmentConfig:
    key: str = since("0+", default="")
    value: str = since("0+", default="")


@stored(key=17, versions="0", flexible="0+")
class StreamsGroupMetadataValue:
    """The epoch of a streams group, and the metadata hash, topology epoch and settings that it belongs to."""

    epoch: Int32 = since("0+", default=0)
    metadata_hash: Int64 = since("0+", default=0)
    validated_topology_epoch: Int32 = since("0+", default=-1, tag=0)
    last_assignment_configs: list[LastAssignmentConfig] | None = since("0+", factory=list, tag=1)


@stored(key=19, versions="0")
class StreamsGroupMemberMetadataKey:
    """Key of a streams group's member."""

    group_id: str = since("0+", default="")
    member_id: str = since("0+", default="")


@struct
class Endpoint:
    host: str = since("0+", default="")
    port: UInt16 = since("0+", default=0)


@struct
class KeyValue:
    key: str = since("0+", default="")
    value: str = since("0+", default="")


@stored(key=19, versions="0", flexible="0+")
class StreamsGroupMemberMetadataValue:
    """A member of a streams group: its client, its process, its endpoint and its tags."""

    instance_id: str | None = since("0+", default="")
    rack_id: str | None = since("0+", default="")
    client_id: str = since("0+", default="")
    client_host: str = since("0+", default="")
    rebalance_timeout_ms: Int32 = since("0+", default=-1)
    topology_epoch: Int32 = since("0+", default=0)
    process_id: str = since("0+", default="")
    user_endpoint: Endpoint | None = since("0+", default=None)
    client_tags: list[KeyValue] = since("0+", factory=list)


@stored(key=20, versions="0")
class StreamsGroupTargetAssignmentMetadataKey:
    """Key of the epoch of a streams group's target assignment."""

    group_id: str = since("0+", default="")


@stored(key=20, versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMetadataValue:
    """The epoch of a streams group's target assignment, and its time."""

    assignment_epoch: Int32 = since("0+", default=0)
    assignment_timestamp: Int64 = since("0+", default=0, tag=0)


@stored(key=21, versions="0")
class StreamsGroupTargetAssignmentMemberKey:
    """Key of the tasks that one member of a streams group should run."""

    group_id: str = since("0+", default="")
    member_id: str = since("0+", default="")


@struct
class TaskIds:
    subtopology_id: str = since("0+", default="")
    partitions: list[Int32] = since("0+", factory=list)


@stored(key=21, versions="0", flexible="0+")
class StreamsGroupTargetAssignmentMemberValue:
    """The tasks that one member of a streams group should run."""

    active_tasks: list[TaskIds] = since("0+", factory=list)
    standby_tasks: list[TaskIds] = since("0+", factory=list)
    warmup_tasks: list[TaskIds] = since("0+", factory=list)


@stored(key=22, versions="0")
class StreamsGroupCurrentMemberAssignmentKey:
    """Key of the tasks that one member of a streams group runs."""

    group_id: str = since("0+", default="")
    member_id: str = since("0+", default="")


@struct
class StreamsGroupCurrentMemberAssignmentTaskIds:
    subtopology_id: str = since("0+", default="")
    partitions: list[Int32] = since("0+", factory=list)
    assignment_epochs: list[Int32] | None = since("0+", factory=list, tag=0)


@stored(key=22, versions="0", flexible="0+")
class StreamsGroupCurrentMemberAssignmentValue:
    """The tasks that a streams group's member runs or must revoke, and its epoch."""

    member_epoch: Int32 = since("0+", default=0)
    previous_member_epoch: Int32 = since("0+", default=0)
    state: Int8 = since("0+", default=0)
    active_tasks: list[StreamsGroupCurrentMemberAssignmentTaskIds] = since("0+", factory=list)
    standby_tasks: list[StreamsGroupCurrentMemberAssignmentTaskIds] = since("0+", factory=list)
    warmup_tasks: list[StreamsGroupCurrentMemberAssignmentTaskIds] = since("0+", factory=list)
    active_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentTaskIds] = since("0+", factory=list)
    standby_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentTaskIds] = since("0+", factory=list)
    warmup_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentTaskIds] = since("0+", factory=list)


@stored(key=23, versions="0")
class StreamsGroupTopologyKey:
    """Key of a streams group's topology."""

    group_id: str = since("0+", default="")


@struct
class TopicConfig:
    key: str = since("0+", default="")
    value: str = since("0+", default="")


@struct
class TopicInfo:
    name: str = since("0+", default="")
    partitions: Int32 = since("0+", default=0)
    replication_factor: Int16 = since("0+", default=0)
    topic_configs: list[TopicConfig] = since("0+", factory=list)


@struct
class CopartitionGroup:
    source_topics: list[Int16] = since("0+", factory=list)
    source_topic_regex: list[Int16] = since("0+", factory=list)
    repartition_source_topics: list[Int16] = since("0+", factory=list)


@struct
class Subtopology:
    subtopology_id: str = since("0+", default="")
    source_topics: list[str] = since("0+", factory=list)
    source_topic_regex: list[str] = since("0+", factory=list)
    state_changelog_topics: list[TopicInfo] = since("0+", factory=list)
    repartition_sink_topics: list[str] = since("0+", factory=list)
    repartition_source_topics: list[TopicInfo] = since("0+", factory=list)
    copartition_groups: list[CopartitionGroup] = since("0+", factory=list)


@stored(key=23, versions="0", flexible="0+")
class StreamsGroupTopologyValue:
    """The topology of a streams group: its subtopologies and their topics."""

    epoch: Int32 = since("0+", default=0)
    subtopologies: list[Subtopology] = since("0+", factory=list)


STREAMS_GROUP_RECORDS: dict[int, tuple[type, type]] = {
    17: (StreamsGroupMetadataKey, StreamsGroupMetadataValue),
    19: (StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue),
    20: (StreamsGroupTargetAssignmentMetadataKey, StreamsGroupTargetAssignmentMetadataValue),
    21: (StreamsGroupTargetAssignmentMemberKey, StreamsGroupTargetAssignmentMemberValue),
    22: (StreamsGroupCurrentMemberAssignmentKey, StreamsGroupCurrentMemberAssignmentValue),
    23: (StreamsGroupTopologyKey, StreamsGroupTopologyValue),
}
"""The classes of key and value, by the type at the start of a record's key."""
