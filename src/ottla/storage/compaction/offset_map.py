"""The newest offset of each key in the dirty part of a log, within a given amount of memory.

Keys shorter than 16 bytes are stored as they are, longer ones as a digest of 16 bytes. The two can never be equal, and
digests do not collide in practice. If a key does not fit, the map ends before it.
"""

from collections.abc import Iterable
from hashlib import blake2b
from select import select
from typing import Final

KEY_BYTES: Final = 16
DEFAULT_LOAD_FACTOR: Final = 0.9

_ENTRY_BYTES: Final = 64 + 32
"""The size of a digest object and an offset object, as the allocator rounds them."""
_SLOT_BYTES: Final = 20
"""The size of a slot of a dictionary, which has a power of two of slots and entries for two thirds of them."""
_GROWTH_BYTES: Final = 62
"""The memory for each new slot while the dictionary grows, with the old table and all objects still there."""
_RECORDS_A_TURN: Final = 0xFF


def capacity_of(memory_bytes: int) -> int:
    """Return how many keys of any length fit into the memory: about one for every 125 to 190 bytes."""
    best, slots = 0, 8
    while slots * _GROWTH_BYTES <= memory_bytes:
        best = max(best, min(slots * 2 // 3, (memory_bytes - slots * _SLOT_BYTES) // _ENTRY_BYTES))
        slots *= 2
    return best


def give_way() -> None:
    """Let another thread take the interpreter, for which it would otherwise wait 5 ms.

    `time.sleep(0)` would do the same, but takes 90 µs on some kernels before Python 3.12.
    """
    select((), (), (), 0)


class OffsetMap:
    """Maps keys to their newest offsets, from the first dirty offset up to `end_offset`."""

    __slots__ = ("_offsets", "capacity", "end_offset")

    def __init__(
        self, memory_bytes: int, first_dirty_offset: int = 0, load_factor: float = DEFAULT_LOAD_FACTOR
    ) -> None:
        self.capacity = int(capacity_of(memory_bytes) * load_factor)
        if self.capacity < 1:
            raise ValueError(f"{memory_bytes} bytes are too few for one key: raise log.cleaner.dedupe.buffer.size")
        self.end_offset = first_dirty_offset
        """All dirty records below this offset are in the map."""
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def utilization(self) -> float:
        """The used share of the map, from 0 to 1."""
        return len(self._offsets) / self.capacity

    def add(self, records: Iterable[tuple[int, int, bytes | None, bool]], first_dirty_offset: int) -> bool:
        """Add records in the order of the log; return False if not all fit.

        The map then ends after the last one that fits. As in Kafka, a full map does not update existing keys either.
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
        """Return the newest offset of the key, or -1."""
        return self._offsets.get(key if len(key) < KEY_BYTES else blake2b(key, digest_size=KEY_BYTES).digest(), -1)
