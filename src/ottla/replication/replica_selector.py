"""Which replica a consumer should read from (KIP-392): one in its rack, if the leader is not, and it is in sync."""

from __future__ import annotations

from ottla.metadata.image.image import Image
from ottla.replication.partition import Partition

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""How Kafka calls the one selector that there is: by its Java class."""


def replica_in_rack(partition: Partition, image: Image, *, rack: str, listener: str, offset: int) -> int | None:
    """The replica to read an offset from; None where the leader, on this broker, is as good as any."""
    if not rack or not partition.is_leader or _rack(image, partition.broker_id, listener) == rack:
        return None
    near = [
        (follower.log_end_offset, follower.caught_up_ms, follower.broker)
        for follower in partition.followers.values()
        if follower.broker in partition.isr
        and follower.log_start_offset <= offset <= follower.log_end_offset
        and _rack(image, follower.broker, listener) == rack
    ]
    return max(near)[2] if near else None


def _rack(image: Image, broker_id: int, listener: str) -> str | None:
    """The rack of a broker that consumers can reach."""
    broker = image.brokers.get(broker_id)
    return None if broker is None or broker.fenced or listener not in broker.endpoints else broker.rack
