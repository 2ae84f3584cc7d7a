"""DescribeCluster (key 60): the nodes of the cluster, its id and its controller.

v1 brokers or controllers (KIP-919) · v2 fenced brokers too (KIP-1073).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int8, Int16, Int32


@request(key=ApiKey.DESCRIBE_CLUSTER, versions="0-2", flexible="0+")
class DescribeClusterRequest:
    include_cluster_authorized_operations: bool = since("0+", default=False)
    endpoint_type: Int8 = since("1+", default=1)
    include_fenced_brokers: bool = since("2+", default=False)


@struct
class DescribeClusterBroker:
    broker_id: Int32 = since("0+", default=0)
    host: str = since("0+", default="")
    port: Int32 = since("0+", default=0)
    rack: str | None = since("0+", default=None)
    is_fenced: bool = since("2+", default=False)


@response(key=ApiKey.DESCRIBE_CLUSTER, versions="0-2", flexible="0+")
class DescribeClusterResponse:
    throttle_time_ms: Int32 = since("0+", default=0)
    error_code: Int16 = since("0+", default=0)
    error_message: str | None = since("0+", default=None)
    endpoint_type: Int8 = since("1+", default=1)
    cluster_id: str = since("0+", default="")
    controller_id: Int32 = since("0+", default=-1)
    brokers: list[DescribeClusterBroker] = since("0+", factory=list)
    cluster_authorized_operations: Int32 = since("0+", default=-2_147_483_648)
