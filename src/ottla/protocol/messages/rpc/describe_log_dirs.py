"""DescribeLogDirs (key 35): the log directories of a broker, and the size of the replicas in them.

v2 flexible · v3 error for the whole answer (KIP-784) · v4 total and usable bytes of the disk (KIP-827) · v5 whether
the directory takes no new replicas (KIP-1066).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int16, Int32, Int64


@struct
class DescribableLogDirTopic:
    topic: str = since("1+", default="")
    partitions: list[Int32] = since("1+", factory=list)


@request(key=ApiKey.DESCRIBE_LOG_DIRS, versions="1-5", flexible="2+")
class DescribeLogDirsRequest:
    topics: list[DescribableLogDirTopic] | None = since("1+", factory=list)


@struct
class DescribeLogDirsPartition:
    partition_index: Int32 = since("1+", default=0)
    partition_size: Int64 = since("1+", default=0)
    offset_lag: Int64 = since("1+", default=0)
    is_future_key: bool = since("1+", default=False)


@struct
class DescribeLogDirsTopic:
    name: str = since("1+", default="")
    partitions: list[DescribeLogDirsPartition] = since("1+", factory=list)


@struct
class DescribeLogDirsResult:
    error_code: Int16 = since("1+", default=0)
    log_dir: str = since("1+", default="")
    topics: list[DescribeLogDirsTopic] = since("1+", factory=list)
    total_bytes: Int64 = since("4+", default=-1)
    usable_bytes: Int64 = since("4+", default=-1)
    is_cordoned: bool = since("5+", default=False)


@response(key=ApiKey.DESCRIBE_LOG_DIRS, versions="1-5", flexible="2+")
class DescribeLogDirsResponse:
    throttle_time_ms: Int32 = since("1+", default=0)
    error_code: Int16 = since("3+", default=0)
    results: list[DescribeLogDirsResult] = since("1+", factory=list)
