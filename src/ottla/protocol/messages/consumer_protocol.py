"""The protocol that classic consumers embed in JoinGroup and SyncGroup."""

from ottla.protocol.wire.declare import since, stored, struct
from ottla.protocol.wire.types import Int32


@struct
class TopicPartition:
    topic: str = since("1+", default="")
    partitions: list[Int32] = since("1+", factory=list)


@stored(versions="0-3")
class ConsumerProtocolSubscription:
    """The subscription that a classic consumer sends to its group's leader."""

    topics: list[str] = since("0+", factory=list)
    user_data: bytes | None = since("0+", default=None)
    owned_partitions: list[TopicPartition] = since("1+", factory=list)
    generation_id: Int32 = since("2+", default=-1)
    rack_id: str | None = since("3+", default=None)


@struct
class ConsumerProtocolAssignmentTopicPartition:
    topic: str = since("0+", default="")
    partitions: list[Int32] = since("0+", factory=list)


@stored(versions="0-3")
class ConsumerProtocolAssignment:
    """The partitions that a group's leader assigns to a classic consumer."""

    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition] = since("0+", factory=list)
    user_data: bytes | None = since("0+", default=None)
