"""StreamsGroupHeartbeat (key 88): a member joins, stays in or leaves a streams group, and gets its tasks."""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int8, Int16, Int32, Int64, UInt16


@struct
class KeyValue:
    key: str = since("0+", default="")
    value: str = since("0+", default="")


@struct
class TopicInfo:
    name: str = since("0+", default="")
    partitions: Int32 = since("0+", default=0)
    replication_factor: Int16 = since("0+", default=0)
    topic_configs: list[KeyValue] = since("0+", factory=list)


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


@struct
class Topology:
    epoch: Int32 = since("0+", default=0)
    subtopologies: list[Subtopology] = since("0+", factory=list)


@struct
class TaskIds:
    subtopology_id: str = since("0+", default="")
    partitions: list[Int32] = since("0+", factory=list)


@struct
class Endpoint:
    host: str = since("0+", default="")
    port: UInt16 = since("0+", default=0)


@struct
class TaskOffset:
    subtopology_id: str = since("0+", default="")
    partition: Int32 = since("0+", default=0)
    offset: Int64 = since("0+", default=0)


@request(key=ApiKey.STREAMS_GROUP_HEARTBEAT, versions="0", flexible="0+")
class StreamsGroupHeartbeatRequest:
    group_id: str = since("0+", default="")
    member_id: str = since("0+", default="")
    member_epoch: Int32 = since("0+", default=0)
    endpoint_information_epoch: Int32 = since("0+", default=0)
    instance_id: str | None = since("0+", default=None)
    rack_id: str | None = since("0+", default=None)
    rebalance_timeout_ms: Int32 = since("0+", default=-1)
    topology: Topology | None = since("0+", default=None)
    active_tasks: list[TaskIds] | None = since("0+", default=None)
    standby_tasks: list[TaskIds] | None = since("0+", default=None)
    warmup_tasks: list[TaskIds] | None = since("0+", default=None)
    process_id: str | None = since("0+", default=None)
    user_endpoint: Endpoint | None = since("0+", default=None)
    client_tags: list[KeyValue] | None = since("0+", default=None)
    task_offsets: list[TaskOffset] | None = since("0+", default=None)
    task_end_offsets: list[TaskOffset] | None = since("0+", default=None)
    shutdown_application: bool = since("0+", default=False)


@struct
class Status:
    status_code: Int8 = since("0+", default=0)
    status_detail: str = since("0+", default="")


@struct
class TopicPartition:
    topic: str = since("0+", default="")
    partitions: list[Int32] = since("0+", factory=list)


@struct
class EndpointToPartitions:
    user_endpoint: Endpoint = since("0+", factory=Endpoint)
    active_partitions: list[TopicPartition] = since("0+", factory=list)
    standby_partitions: list[TopicPartition] = since("0+", factory=list)


@response(key=ApiKey.STREAMS_GROUP_HEARTBEAT, versions="0", flexible="0+")
class StreamsGroupHeartbeatResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("0+", default=None)
    member_id: str = since("0+", default="")
    member_epoch: Int32 = since("0+", default=0)
    heartbeat_interval_ms: Int32 = since("0+", default=0)
    acceptable_recovery_lag: Int32 = since("0+", default=0)
    task_offset_interval_ms: Int32 = since("0+", default=0)
    status: list[Status] | None = since("0+", factory=list)
    active_tasks: list[TaskIds] | None = since("0+", default=None)
    standby_tasks: list[TaskIds] | None = since("0+", default=None)
    warmup_tasks: list[TaskIds] | None = since("0+", default=None)
    endpoint_information_epoch: Int32 = since("0+", default=0)
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = since("0+", default=None)
