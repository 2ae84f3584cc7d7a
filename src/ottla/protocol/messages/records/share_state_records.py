"""Records of `__share_group_state`: the delivery state of share partitions."""

from ottla.protocol.wire.declare import since, stored, struct
from ottla.protocol.wire.types import ZERO_UUID, Int8, Int16, Int32, Int64, Uuid


@stored(key=0, versions="0")
class ShareSnapshotKey:
    """Key of the whole state of a share partition: group, topic and partition."""

    group_id: str = since("0+", default="")
    topic_id: Uuid = since("0+", default=ZERO_UUID)
    partition: Int32 = since("0+", default=0)


@struct
class StateBatch:
    first_offset: Int64 = since("0+", default=0)
    last_offset: Int64 = since("0+", default=0)
    delivery_state: Int8 = since("0+", default=0)
    delivery_count: Int16 = since("0+", default=0)


@stored(key=0, versions="0", flexible="0+")
class ShareSnapshotValue:
    """The whole state of a share partition: its start offset, and the state of each record."""

    snapshot_epoch: Int32 = since("0+", default=0)
    state_epoch: Int32 = since("0+", default=0)
    leader_epoch: Int32 = since("0+", default=0)
    start_offset: Int64 = since("0+", default=0)
    create_timestamp: Int64 = since("0+", default=0)
    write_timestamp: Int64 = since("0+", default=0)
    state_batches: list[StateBatch] = since("0+", factory=list)
    delivery_complete_count: Int32 = since("0+", default=-1, tag=0)


@stored(key=1, versions="0")
class ShareUpdateKey:
    """Key of a change to the state of a share partition: group, topic and partition."""

    group_id: str = since("0+", default="")
    topic_id: Uuid = since("0+", default=ZERO_UUID)
    partition: Int32 = since("0+", default=0)


@stored(key=1, versions="0", flexible="0+")
class ShareUpdateValue:
    """The changes to the state of a share partition since its last snapshot."""

    snapshot_epoch: Int32 = since("0+", default=0)
    leader_epoch: Int32 = since("0+", default=0)
    start_offset: Int64 = since("0+", default=0)
    state_batches: list[StateBatch] = since("0+", factory=list)
    delivery_complete_count: Int32 = since("0+", default=-1, tag=0)


SHARE_STATE_RECORDS: dict[int, tuple[type, type]] = {
    0: (ShareSnapshotKey, ShareSnapshotValue),
    1: (ShareUpdateKey, ShareUpdateValue),
}
"""The classes of key and value, by the type at the start of a record's key."""
