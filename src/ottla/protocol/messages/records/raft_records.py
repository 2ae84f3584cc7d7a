"""Control records, of which most belong to the metadata log and its snapshots, and the quorum-state file."""

from ottla.protocol.wire.declare import since, stored, struct
from ottla.protocol.wire.types import ZERO_UUID, Int16, Int32, Int64, UInt16, Uuid


@struct
class Voter:
    voter_id: Int32 = since("0+", default=0)
    voter_directory_id: Uuid = since("1+", default=ZERO_UUID)


@stored(versions="0-1", flexible="0+")
class LeaderChangeMessage:
    """Control record: the new leader of the quorum, and the voters that elected it."""

    version: Int16 = since("0+", default=0)
    leader_id: Int32 = since("0+", default=0)
    voters: list[Voter] = since("0+", factory=list)
    granting_voters: list[Voter] = since("0+", factory=list)


@stored(versions="0", flexible="0+")
class SnapshotHeaderRecord:
    """Control record: the start of a metadata snapshot, and the timestamp of its last record."""

    version: Int16 = since("0+", default=0)
    last_contained_log_timestamp: Int64 = since("0+", default=0)


@stored(versions="0", flexible="0+")
class SnapshotFooterRecord:
    """Control record: the end of a metadata snapshot."""

    version: Int16 = since("0+", default=0)


@stored(versions="0", flexible="0+")
class KRaftVersionRecord:
    """Control record: the new kraft.version of the quorum."""

    version: Int16 = since("0+", default=0)
    kraft_version: Int16 = since("0+", default=0)


@struct
class Endpoint:
    name: str = since("0+", default="")
    host: str = since("0+", default="")
    port: UInt16 = since("0+", default=0)


@struct
class KRaftVersionFeature:
    min_supported_version: Int16 = since("0+", default=0)
    max_supported_version: Int16 = since("0+", default=0)


@struct
class VotersVoter:
    voter_id: Int32 = since("0+", default=0)
    voter_directory_id: Uuid = since("0+", default=ZERO_UUID)
    endpoints: list[Endpoint] = since("0+", factory=list)
    kraft_version_feature: KRaftVersionFeature = since("0+", factory=KRaftVersionFeature)


@stored(versions="0", flexible="0+")
class VotersRecord:
    """Control record: the new voters of the quorum, with their endpoints."""

    version: Int16 = since("0+", default=0)
    voters: list[VotersVoter] = since("0+", factory=list)


@struct
class QuorumStateVoter:
    voter_id: Int32 = since("0", default=0)


@stored(versions="0-1", flexible="0+")
class QuorumState:
    """The file in which a node of the Raft quorum keeps its epoch, its leader and its vote."""

    cluster_id: str = since("0", default="")
    leader_id: Int32 = since("0+", default=-1)
    leader_epoch: Int32 = since("0+", default=-1)
    voted_id: Int32 = since("0+", default=-1)
    applied_offset: Int64 = since("0", default=0)
    current_voters: list[QuorumStateVoter] | None = since("0", factory=list)
    voted_directory_id: Uuid = since("1+", default=ZERO_UUID)


@stored(versions="0")
class ControlRecordKey:
    """The key of a control record: its type."""

    type: Int16 = since("0+", default=0)


@stored(versions="0")
class EndTxnMarker:
    """The value of a commit or abort marker: the epoch of the coordinator that wrote it."""

    coordinator_epoch: Int32 = since("0+", default=0)
