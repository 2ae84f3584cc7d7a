"""WriteTxnMarkers (key 27): a coordinator asks leaders to append commit or abort markers to partitions.

v2 transaction version, for a stricter check of epochs (KIP-1228).
"""

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.wire.declare import request, response, since, struct
from ottla.protocol.wire.types import Int8, Int16, Int32, Int64


@struct
class WritableTxnMarkerTopic:
    name: str = since("1+", default="")
    partition_indexes: list[Int32] = since("1+", factory=list)


@struct
class WritableTxnMarker:
    producer_id: Int64 = since("1+", default=0)
    producer_epoch: Int16 = since("1+", default=0)
    transaction_result: bool = since("1+", default=False)
    topics: list[WritableTxnMarkerTopic] = since("1+", factory=list)
    coordinator_epoch: Int32 = since("1+", default=0)
    transaction_version: Int8 = since("2+", default=0)


@request(key=ApiKey.WRITE_TXN_MARKERS, versions="1-2", flexible="1+")
class WriteTxnMarkersRequest:
    markers: list[WritableTxnMarker] = since("1+", factory=list)


@struct
class WritableTxnMarkerPartitionResult:
    partition_index: Int32 = since("1+", default=0)
    error_code: Int16 = since("1+", default=0)


@struct
class WritableTxnMarkerTopicResult:
    name: str = since("1+", default="")
    partitions: list[WritableTxnMarkerPartitionResult] = since("1+", factory=list)


@struct
class WritableTxnMarkerResult:
    producer_id: Int64 = since("1+", default=0)
    topics: list[WritableTxnMarkerTopicResult] = since("1+", factory=list)


@response(key=ApiKey.WRITE_TXN_MARKERS, versions="1-2", flexible="1+")
class WriteTxnMarkersResponse:
    markers: list[WritableTxnMarkerResult] = since("1+", factory=list)
