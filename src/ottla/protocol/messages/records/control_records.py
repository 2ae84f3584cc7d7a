"""Control records: the keys of control batches, and the markers that end transactions."""

from ottla.protocol.wire.declare import since, stored
from ottla.protocol.wire.types import Int16, Int32


@stored(versions="0")
class ControlRecordKey:
    """The key of a control record: which kind of control record it is."""

    type: Int16 = since("0+", default=0)


@stored(versions="0")
class EndTxnMarker:
    """The value of a commit or abort marker: which epoch of the coordinator wrote it."""

    coordinator_epoch: Int32 = since("0+", default=0)
