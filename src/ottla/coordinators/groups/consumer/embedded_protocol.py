"""The consumer protocol that classic members embed in JoinGroup and SyncGroup: subscriptions and assignments.

A message begins with its version as an i16. A message of a later version is decoded as the latest known one, because
new versions only append fields.
"""

from __future__ import annotations

import struct
from typing import Final

from ottla.coordinators.groups.consumer.member import Target
from ottla.metadata.image.image import Image
from ottla.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from ottla.protocol.wire.codec import decode_from, encode
from ottla.protocol.wire.errors import ProtocolError

_LATEST: Final = 3
_version = struct.Struct(">h")


def read_version(data: bytes) -> int:
    """Return the version of a message; raise ProtocolError if it has none."""
    if len(data) < _version.size:
        raise ProtocolError(f"an embedded message of {len(data)} bytes has no version")
    version: int = _version.unpack_from(data)[0]
    if version < 0:
        raise ProtocolError(f"an embedded message has version {version}")
    return min(version, _LATEST)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Decode a member's subscription; raise ProtocolError if it is malformed."""
    subscription, _ = decode_from(ConsumerProtocolSubscription, read_version(data), memoryview(data)[_version.size :])
    return subscription


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Decode a member's assignment; raise ProtocolError if it is malformed."""
    assignment, _ = decode_from(ConsumerProtocolAssignment, read_version(data), memoryview(data)[_version.size :])
    return assignment


def write_assignment(target: Target, image: Image, version: int) -> bytes:
    """Encode a target with topic names, without topics that no longer exist."""
    topics = [
        ConsumerProtocolAssignmentTopicPartition(topic=topic.name, partitions=list(partitions))
        for topic_id, partitions in target.items()
        if (topic := image.topic_by_id(topic_id)) is not None
    ]
    return _version.pack(version) + bytes(encode(ConsumerProtocolAssignment(assigned_partitions=topics), version))
