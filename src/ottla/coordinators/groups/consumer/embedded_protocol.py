"""What classic consumers tell each other inside JoinGroup and SyncGroup, read and written by the coordinator.

Such a message begins with its version as an i16. One of a later version than is known here is read as the latest that
is: fields are only ever added at the end.
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
    """The version of a message; raises ProtocolError if it has none."""
    if len(data) < _version.size:
        raise ProtocolError(f"an embedded message of {len(data)} bytes")
    version: int = _version.unpack_from(data)[0]
    if version < 0:
        raise ProtocolError(f"an embedded message of version {version}")
    return min(version, _LATEST)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """A member's subscription; raises ProtocolError."""
    found, _ = decode_from(ConsumerProtocolSubscription, read_version(data), memoryview(data)[_version.size :])
    return found


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """A member's partitions; raises ProtocolError."""
    found, _ = decode_from(ConsumerProtocolAssignment, read_version(data), memoryview(data)[_version.size :])
    return found


def write_assignment(target: Target, image: Image, version: int) -> bytes:
    """Partitions of the topics that are there, by their names."""
    topics = [
        ConsumerProtocolAssignmentTopicPartition(topic=topic.name, partitions=list(partitions))
        for topic_id, partitions in target.items()
        if (topic := image.topic_by_id(topic_id)) is not None
    ]
    return _version.pack(version) + bytes(encode(ConsumerProtocolAssignment(assigned_partitions=topics), version))
