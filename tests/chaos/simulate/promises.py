"""What may never be otherwise, whatever happens: looked at as it happens, for every step of every node."""

from collections.abc import Iterable, Iterator
from typing import Any
from zlib import crc32


class Promises:
    """Everything that was ever promised."""

    def __init__(self) -> None:
        self._quorum_leaders: dict[int, int] = {}
        self._metadata: dict[int, int] = {}
        self._committed: dict[tuple[str, int], dict[int, int]] = {}
        self._seen: dict[tuple[int, str, int], _Seen] = {}

    def leads_quorum(self, node: int, epoch: int) -> None:
        leader = self._quorum_leaders.setdefault(epoch, node)
        assert leader == node, f"in epoch {epoch} both {leader} and {node} lead the quorum"

    @property
    def quorum_epochs(self) -> int:
        """How many leaders the quorum has had."""
        return len(self._quorum_leaders)

    def metadata_committed(self, end: int, digest: int) -> None:
        """What a node holds for committed is what every other ever held for committed."""
        assert self._metadata.setdefault(end, digest) == digest, f"committed metadata differ before {end}"

    @property
    def committed_metadata(self) -> int:
        return max(self._metadata, default=0)

    def logs(self, node: int, partitions: Iterable[Any]) -> None:
        """Up to their high watermarks, all replicas that ever were have the same."""
        for partition in partitions:
            log = partition.log
            if log is None:
                continue
            key = (node, partition.topic, partition.index)
            seen = self._seen.get(key)
            if seen is None or seen.log is not log or log.high_watermark < seen.end:
                seen = self._seen[key] = _Seen(log)
            if log.high_watermark > seen.end:
                agreed = self._committed.setdefault(key[1:], {})
                for end, digest in seen.go_on():
                    known = agreed.setdefault(end, digest)
                    assert known == digest, f"{partition.topic}-{partition.index} differs before {end}: {log}"


class _Seen:
    """How far a log has been looked at."""

    def __init__(self, log: Any) -> None:
        self.log = log
        self.end, self.digest = 0, 0
        self._segment, self._position = -1, 0

    def go_on(self) -> Iterator[tuple[int, int]]:
        """The digest of the log up to the end of each batch that is committed by now."""
        for segment in self.log.segments:
            if segment.base_offset < self._segment:
                continue
            if segment.base_offset > self._segment:
                self._segment, self._position = segment.base_offset, 0
            for position, header, block, at in segment.batches(self._position):
                if header.next_offset > self.log.high_watermark:
                    return
                self.digest = crc32(block[at : at + header.size_bytes], self.digest)
                self.end, self._position = header.next_offset, position + header.size_bytes
                yield self.end, self.digest
