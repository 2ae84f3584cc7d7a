"""CreateTopics (key 19): create topics with their partitions, replicas and settings.

v3 responds before it throttles (KIP-219) · v4 default number of partitions and replicas with -1 (KIP-464) · v5
flexible; returns the settings of the new topic (KIP-525) · v6 may return THROTTLING_QUOTA_EXCEEDED (KIP-599) · v7
returns the topic's id (KIP-516).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import ZERO_UUID, Int8, Int16, Int32, Uuid


@struct
class CreatableReplicaAssignment:
    partition_index: Int32 = since("2+", default=0)
    broker_ids: list[Int32] = since("2+", factory=list)


@struct
class CreatableTopicConfig:
    name: str = since("2+", default="")
    value: str | None = since("2+", default="")


@struct
class CreatableTopic:
    name: str = since("2+", default="")
    num_partitions: Int32 = since("2+", default=0)
    replication_factor: Int16 = since("2+", default=0)
    assignments: list[CreatableReplicaAssignment] = since("2+", factory=list)
    configs: list[CreatableTopicConfig] = since("2+", factory=list)


@request(key=ApiKey.CREATE_TOPICS, versions="2-7", flexible="5+")
class CreateTopicsRequest:
    topics: list[CreatableTopic] = since("2+", factory=list)
    timeout_ms: Int32 = since("2+", default=60_000)
    validate_only: bool = since("2+", default=False)


@struct
class CreatableTopicConfigs:
    name: str = since("5+", default="")
    value: str | None = since("5+", default="")
    read_only: bool = since("5+", default=False)
    config_source: Int8 = since("5+", default=-1)
    is_sensitive: bool = since("5+", default=False)


@struct
class CreatableTopicResult:
    name: str = since("2+", default="")
    topic_id: Uuid = since("7+", default=ZERO_UUID)
    error_code: Int16 = since("2+", default=0)
    error_message: str | None = since("2+", default="")
    num_partitions: Int32 = since("5+", default=-1)
    replication_factor: Int16 = since("5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = since("5+", factory=list, shared=True)
    topic_config_error_code: Int16 = since("5+", default=0, tag=0)


@response(key=ApiKey.CREATE_TOPICS, versions="2-7", flexible="5+")
class CreateTopicsResponse:
    throttle_time_ms: Int32 = since("2+", default=0)
    topics: list[CreatableTopicResult] = since("2+", factory=list)
