"""The newest offset of each key in the part of a log that compaction looks at, within a given amount of memory.

Keys shorter than 16 bytes are kept as they are, longer ones as a digest of 16 bytes: the two can never be equal, and
nobody finds two keys with one digest. What does not fit is not an error: the map then ends before it.
"""

from collections.abc import Iterable
from hashlib import blake2b
from select import select
from typing import Final

KEY_BYTES: Final = 16
DEFAULT_LOAD_FACTOR: Final = 0.9

_ENTRY_BYTES: Final = 64 + 32
"""The objects of a digest and of an offset, as the allocator rounds them."""
_SLOT_BYTES: Final = 20
"""A dictionary has a power of two of slots, each a number, and entries for two thirds of them."""
_GROWTH_BYTES: Final = 62
"""What a slot of the new table costs at the moment of growing, with the old table and all objects there."""
_RECORDS_A_TURN: Final = 0xFF


def capacity_of(memory_bytes: int) -> int:
    """How many keys fit into so much memory, whatever their length: about one in 125 to 190 bytes."""
    best, slots = 0, 8
    while slots * _GROWTH_BYTES <= memory_bytes:
        best = max(best, min(slots * 2 // 3, (memory_bytes - slots * _SLOT_BYTES) // _ENTRY_BYTES))
        slots *= 2
    return best


def give_way() -> None:
    """Let another thread have the interpreter, which it would otherwise wait 5 ms for.

    `time.sleep(0)` does so too, but takes 90 µs on Linux before Python 3.12.
    """
    select((), (), (), 0)


class OffsetMap:
    """From keys to offsets, for the offsets from some first dirty one up to `end_offset`."""

    __slots__ = ("_offsets", "capacity", "end_offset")

    def __init__(
        self, memory_bytes: int, first_dirty_offset: int = 0, load_factor: float = DEFAULT_LOAD_FACTOR
    ) -> None:
        self.capacity = int(capacity_of(memory_bytes) * load_factor)
        if self.capacity < 1:
            raise ValueError(f"{memory_bytes} bytes hold no key: log.cleaner.dedupe.buffer.size is too small")
        self.end_offset = first_dirty_offset
        """All records below are in the map, so that it can tell which of them are the newest."""
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def utilization(self) -> float:
        """How full the map is, from 0 to 1."""
        return len(self._offsets) / self.capacity

    def add(self, records: Iterable[tuple[int, int, bytes | None, bool]], first_dirty_offset: int) -> bool:
        """Take in the records, as `wire.records.keys` gives them, in the order of the log; False if not all fit.

        The map then ends behind the last that did. As in Kafka a full map takes no known keys either.
        """
        offsets, capacity = self._offsets, self.capacity
        last = -1
        for offset, _, key, _ in records:
            if key is not None and offset >= first_dirty_offset:
                if len(offsets) >= capacity:
                    self.end_offset = max(self.end_offset, last + 1)
                    return False
                offsets[key if len(key) < KEY_BYTES else blake2b(key, digest_size=KEY_BYTES).digest()] = last = offset
                if not offset & _RECORDS_A_TURN:
                    give_way()
        return True

    def get(self, key: bytes) -> int:
        """The newest offset of the key, or -1."""
        return self._offsets.get(key if len(key) < KEY_BYTES else blake2b(key, digest_size=KEY_BYTES).digest(), -1)
