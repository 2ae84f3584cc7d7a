"""The replica selector (KIP-392): consumers read from an in-sync replica in their rack if the leader is elsewhere."""

from __future__ import annotations

from ottla.metadata.image.image import Image
from ottla.replication.partition import Partition

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The only selector, by the name of Kafka's Java class."""


def replica_in_rack(partition: Partition, image: Image, *, rack: str, listener: str, offset: int) -> int | None:
    """Return the replica to read an offset from; None for the leader on this broker."""
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
    """Return the rack of a broker; None if consumers cannot reach it."""
    broker = image.brokers.get(broker_id)
    return None if broker is None or broker.fenced or listener not in broker.endpoints else broker.rack
