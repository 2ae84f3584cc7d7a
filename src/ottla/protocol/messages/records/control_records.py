"""Control records: the keys of control batches, and the markers that end transactions."""

from ottla.protocol.wire.declare import since, stored
from ottla.protocol.wire.types import Int16, Int32


@stored(versions="0")
class ControlRecordKey:
    """The key of a control record: its type."""

    type: Int16 = since("0+", default=0)


@stored(versions="0")
class EndTxnMarker:
    """The value of a commit or abort marker: the epoch of the coordinator that wrote it."""

    coordinator_epoch: Int32 = since("0+", default=0)
