"""Metadata (key 3): the brokers of the cluster, and the partitions of topics with their leaders.

v1 racks, the controller, internal topics; null asks for all topics, an empty list for none · v2 cluster id (KIP-78) ·
v3 returns the throttle time (KIP-124) · v4 lets the client forbid auto-creation · v5 offline replicas (KIP-112) · v6
responds before it throttles (KIP-219) · v7 leader epochs (KIP-320) · v8 authorized operations (KIP-430) · v9 flexible ·
v10 returns topic ids (KIP-516) · v11 leaves the cluster's authorized operations to DescribeCluster (KIP-700) · v12
topics by id alone (KIP-516) · v13 error for the whole answer, to rebootstrap (KIP-1102).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import ZERO_UUID, Int16, Int32, Uuid


@struct
class MetadataRequestTopic:
    topic_id: Uuid = since("10+", default=ZERO_UUID)
    name: str | None = since("0+", default="", nullable="10+")


@request(key=ApiKey.METADATA, versions="0-13", flexible="9+")
class MetadataRequest:
    topics: list[MetadataRequestTopic] | None = since("0+", factory=list, nullable="1+")
    allow_auto_topic_creation: bool = since("4+", default=True)
    include_cluster_authorized_operations: bool = since("8-10", default=False)
    include_topic_authorized_operations: bool = since("8+", default=False)


@struct
class MetadataResponseBroker:
    node_id: Int32 = since("0+", default=0)
    host: str = since("0+", default="")
    port: Int32 = since("0+", default=0)
    rack: str | None = since("1+", default=None)


@struct
class MetadataResponsePartition:
    error_code: Int16 = since("0+", default=0)
    partition_index: Int32 = since("0+", default=0)
    leader_id: Int32 = since("0+", default=0)
    leader_epoch: Int32 = since("7+", default=-1)
    replica_nodes: list[Int32] = since("0+", factory=list)
    isr_nodes: list[Int32] = since("0+", factory=list)
    offline_replicas: list[Int32] = since("5+", factory=list)


@struct
class MetadataResponseTopic:
    error_code: Int16 = since("0+", default=0)
    name: str | None = since("0+", default="", nullable="12+")
    topic_id: Uuid = since("10+", default=ZERO_UUID)
    is_internal: bool = since("1+", default=False)
    partitions: list[MetadataResponsePartition] = since("0+", factory=list)
    topic_authorized_operations: Int32 = since("8+", default=-2_147_483_648)


@response(key=ApiKey.METADATA, versions="0-13", flexible="9+")
class MetadataResponse:
    throttle_time_ms: Int32 = since("3+", default=0)
    brokers: list[MetadataResponseBroker] = since("0+", factory=list)
    cluster_id: str | None = since("2+", default=None)
    controller_id: Int32 = since("1+", default=-1)
    topics: list[MetadataResponseTopic] = since("0+", factory=list)
    cluster_authorized_operations: Int32 = since("8-10", default=-2_147_483_648)
    error_code: Int16 = since("13+", default=0)
