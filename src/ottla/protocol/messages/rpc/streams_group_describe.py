"""StreamsGroupDescribe (key 89): the state, the topology, the members and the tasks of streams groups."""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int16, Int32, Int64, UInt16


@request(key=ApiKey.STREAMS_GROUP_DESCRIBE, versions="0", flexible="0+")
class StreamsGroupDescribeRequest:
    group_ids: list[str] = since("0+", factory=list)
    include_authorized_operations: bool = since("0+", default=False)


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
class Subtopology:
    subtopology_id: str = since("0+", default="")
    source_topics: list[str] = since("0+", factory=list)
    repartition_sink_topics: list[str] = since("0+", factory=list)
    state_changelog_topics: list[TopicInfo] = since("0+", factory=list)
    repartition_source_topics: list[TopicInfo] = since("0+", factory=list)


@struct
class Topology:
    epoch: Int32 = since("0+", default=0)
    subtopologies: list[Subtopology] | None = since("0+", default=None)


@struct
class Endpoint:
    host: str = since("0+", default="")
    port: UInt16 = since("0+", default=0)


@struct
class TaskOffset:
    subtopology_id: str = since("0+", default="")
    partition: Int32 = since("0+", default=0)
    offset: Int64 = since("0+", default=0)


@struct
class TaskIds:
    subtopology_id: str = since("0+", default="")
    partitions: list[Int32] = since("0+", factory=list)


@struct
class Assignment:
    active_tasks: list[TaskIds] = since("0+", factory=list)
    standby_tasks: list[TaskIds] = since("0+", factory=list)
    warmup_tasks: list[TaskIds] = since("0+", factory=list)


@struct
class Member:
    member_id: str = since("0+", default="")
    member_epoch: Int32 = since("0+", default=0)
    instance_id: str | None = since("0+", default=None)
    rack_id: str | None = since("0+", default=None)
    client_id: str = since("0+", default="")
    client_host: str = since("0+", default="")
    topology_epoch: Int32 = since("0+", default=0)
    process_id: str = since("0+", default="")
    user_endpoint: Endpoint | None = since("0+", default=None)
    client_tags: list[KeyValue] = since("0+", factory=list)
    task_offsets: list[TaskOffset] = since("0+", factory=list)
    task_end_offsets: list[TaskOffset] = since("0+", factory=list)
    assignment: Assignment = since("0+", factory=Assignment)
    target_assignment: Assignment = since("0+", factory=Assignment)
    is_classic: bool = since("0+", default=False)


@struct
class DescribedGroup:
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("0+", default=None)
    group_id: str = since("0+", default="")
    group_state: str = since("0+", default="")
    group_epoch: Int32 = since("0+", default=0)
    assignment_epoch: Int32 = since("0+", default=0)
    topology: Topology | None = since("0+", default=None)
    members: list[Member] = since("0+", factory=list)
    authorized_operations: Int32 = since("0+", default=-2_147_483_648)


@response(key=ApiKey.STREAMS_GROUP_DESCRIBE, versions="0", flexible="0+")
class StreamsGroupDescribeResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    groups: list[DescribedGroup] = since("0+", factory=list)
