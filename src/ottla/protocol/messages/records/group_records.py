"""Records of `__consumer_offsets`: offsets and classic groups. A key and its value have the same type."""

from ottla.protocol.wire.declare import since, stored, struct
from ottla.protocol.wire.types import ZERO_UUID, Int32, Int64, Uuid


@stored(key=0, versions="0")
class LegacyOffsetCommitKey:
    """Key of a committed offset in the oldest format: group, topic and partition."""

    group: str = since("0+", default="")
    topic: str = since("0+", default="")
    partition: Int32 = since("0+", default=0)


@stored(key=0, versions="0")
class LegacyOffsetCommitValue:
    """A committed offset in the oldest format, which is read but never written."""

    offset: Int64 = since("0+", default=0)
    metadata: str = since("0+", default="")
    commit_timestamp: Int64 = since("0+", default=0)


@stored(key=1, versions="0")
class OffsetCommitKey:
    """Key of a committed offset: group, topic and partition."""

    group: str = since("0+", default="")
    topic: str = since("0+", default="")
    partition: Int32 = since("0+", default=0)


@stored(key=1, versions="0-4", flexible="4+")
class OffsetCommitValue:
    """A committed offset, with the member's metadata and the time of the commit."""

    offset: Int64 = since("0+", default=0)
    leader_epoch: Int32 = since("3+", default=-1)
    metadata: str = since("0+", default="")
    commit_timestamp: Int64 = since("0+", default=0)
    expire_timestamp: Int64 = since("1", default=-1)
    topic_id: Uuid = since("4+", default=ZERO_UUID, tag=0)


@stored(key=2, versions="0")
class GroupMetadataKey:
    """Key of a classic group."""

    group: str = since("0+", default="")


@struct
class MemberMetadata:
    member_id: str = since("0+", default="")
    group_instance_id: str | None = since("3+", default=None)
    client_id: str = since("0+", default="")
    client_host: str = since("0+", default="")
    rebalance_timeout: Int32 = since("1+", default=-1)
    session_timeout: Int32 = since("0+", default=0)
    subscription: bytes = since("0+", default=b"")
    assignment: bytes = since("0+", default=b"")


@stored(key=2, versions="0-4", flexible="4+")
class GroupMetadataValue:
    """A classic group: its generation, its protocol and its members with their assignments."""

    protocol_type: str = since("0+", default="")
    generation: Int32 = since("0+", default=0)
    protocol: str | None = since("0+", default="")
    leader: str | None = since("0+", default="")
    current_state_timestamp: Int64 = since("2+", default=-1)
    members: list[MemberMetadata] = since("0+", factory=list)


GROUP_RECORDS: dict[int, tuple[type, type]] = {
    0: (LegacyOffsetCommitKey, LegacyOffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
}
"""The classes of key and value, by the type at the start of a record's key."""
