"""Invariants that must hold under any faults, checked at every step of every node."""

from collections.abc import Iterable, Iterator
from typing import Any
from zlib import crc32


class Invariants:
    """Checks new observations against all earlier ones."""

    def __init__(self) -> None:
        self._quorum_leaders: dict[int, int] = {}
        self._metadata: dict[int, int] = {}
        self._committed: dict[tuple[str, int], dict[int, int]] = {}
        self._digests: dict[tuple[int, str, int], _LogDigest] = {}

    def check_quorum_leader(self, node: int, epoch: int) -> None:
        """Check that an epoch of the quorum has one leader."""
        leader = self._quorum_leaders.setdefault(epoch, node)
        assert leader == node, f"both {leader} and {node} lead the quorum in epoch {epoch}"

    @property
    def quorum_epochs(self) -> int:
        """The number of quorum epochs with a leader."""
        return len(self._quorum_leaders)

    def check_metadata(self, end: int, digest: int) -> None:
        """Check that all nodes have the same committed metadata up to an offset."""
        assert self._metadata.setdefault(end, digest) == digest, f"committed metadata differ before offset {end}"

    @property
    def committed_metadata(self) -> int:
        return max(self._metadata, default=0)

    def check_logs(self, node: int, partitions: Iterable[Any]) -> None:
        """Check that all replicas, past and present, are equal up to their high watermarks."""
        for partition in partitions:
            log = partition.log
            if log is None:
                continue
            key = (node, partition.topic, partition.index)
            digest = self._digests.get(key)
            if digest is None or digest.log is not log or log.high_watermark < digest.end:
                digest = self._digests[key] = _LogDigest(log)
            if log.high_watermark > digest.end:
                committed = self._committed.setdefault(key[1:], {})
                for end, value in digest.advance():
                    expected = committed.setdefault(end, value)
                    assert expected == value, f"{partition.topic}-{partition.index} differs before {end}: {log}"


class _LogDigest:
    """The checksum of the committed part of a log."""

    def __init__(self, log: Any) -> None:
        self.log = log
        self.end, self._value = 0, 0
        self._segment, self._position = -1, 0

    def advance(self) -> Iterator[tuple[int, int]]:
        """Yield the end offset of each newly committed batch, with the checksum of the log up to it."""
        for segment in self.log.segments:
            if segment.base_offset < self._segment:
                continue
            if segment.base_offset > self._segment:
                self._segment, self._position = segment.base_offset, 0
            for position, header, block, start in segment.batches(self._position):
                if header.next_offset > self.log.high_watermark:
                    return
                self._value = crc32(block[start : start + header.size_bytes], self._value)
                self.end, self._position = header.next_offset, position + header.size_bytes
                yield self.end, self._value
