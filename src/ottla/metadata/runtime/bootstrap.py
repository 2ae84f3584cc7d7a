"""The two files of a formatted directory that start a cluster, both in the format of metadata snapshots.

`bootstrap.checkpoint`, in every directory, has the records that the first controller writes into an empty metadata log:
features and credentials. The empty snapshot, `00000000000000000000-0000000000.checkpoint`, in the metadata partition,
has the first voters of a quorum whose voters are in the log (KIP-853).
"""

from collections.abc import Iterable, Sequence
from typing import Final

from ottla.metadata.consensus.voters import VoterSet
from ottla.metadata.image.encoding import control_batch, entries, metadata_batch
from ottla.protocol.messages.records.metadata_records import FeatureLevelRecord
from ottla.protocol.messages.records.raft_records import KRaftVersionRecord, SnapshotFooterRecord, SnapshotHeaderRecord
from ottla.protocol.metadata_versions import LATEST, METADATA_VERSION, record_version
from ottla.protocol.wire.batch import check_crc, read_batches
from ottla.protocol.wire.errors import ProtocolError
from ottla.storage.directories.node_files import MalformedFile
from ottla.storage.disk import Disk, read_file, replace_file

BOOTSTRAP: Final = "bootstrap.checkpoint"
METADATA_LOG_NAME: Final = "__cluster_metadata-0"
EMPTY_SNAPSHOT: Final = "00000000000000000000-0000000000.checkpoint"
"""The name has the end offset and the epoch of an empty log."""


def write_bootstrap(
    disk: Disk, directory: str, records: Sequence[object], *, metadata_version: int, now_ms: int
) -> None:
    versioned = [(record, record_version(type(record), metadata_version)) for record in records]
    batch = metadata_batch(versioned, base_offset=1, epoch=0, timestamp=now_ms)
    header = SnapshotHeaderRecord()  # it contains no log, so it has no last timestamp
    content = _framed([header], [batch], 1 + len(records), now_ms)
    replace_file(disk, f"{directory}/{BOOTSTRAP}", content)


def read_bootstrap(disk: Disk, directory: str) -> list[object]:
    """Return the bootstrap records. Raise MalformedFile.

    A directory without the file was formatted by Kafka before 3.3, or by hand. It gets the latest metadata.version.
    """
    path = f"{directory}/{BOOTSTRAP}"
    try:
        content = read_file(disk, path)
    except FileNotFoundError:
        return [FeatureLevelRecord(name=METADATA_VERSION, feature_level=LATEST)]
    bootstrap: list[object] = []
    try:
        for pos, header in read_batches(content):
            check_crc(content, pos, header)
            if not header.is_control:
                bootstrap += (entry[2] for entry in entries(content, pos, header))
    except ProtocolError as error:
        raise MalformedFile(path, str(error)) from None
    return bootstrap


def write_first_voters(disk: Disk, directory: str, voters: VoterSet, *, kraft_version: int, now_ms: int) -> None:
    """Create the metadata partition with a snapshot that has the first voters."""
    partition = f"{directory}/{METADATA_LOG_NAME}"
    disk.make_dir(partition)
    disk.sync_dir(directory)
    start = [
        SnapshotHeaderRecord(last_contained_log_timestamp=now_ms),
        KRaftVersionRecord(kraft_version=kraft_version),
        voters.to_record(),
    ]
    replace_file(disk, f"{partition}/{EMPTY_SNAPSHOT}", _framed(start, [], len(start), now_ms))


def _framed(start: Sequence[object], content: Iterable[bytes | bytearray], end_offset: int, now_ms: int) -> bytes:
    """Return a snapshot: control records, batches, and the footer that completes it."""
    header = control_batch(start, base_offset=0, epoch=0, timestamp=now_ms)
    footer = control_batch([SnapshotFooterRecord()], base_offset=end_offset, epoch=0, timestamp=now_ms)
    return b"".join((header, *content, footer))
