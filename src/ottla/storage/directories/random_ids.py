"""Random ids of clusters, directories and nodes: UUIDs of version 4, as Kafka makes them."""

import secrets
from collections.abc import Callable
from typing import Final

from ottla.storage.directories.node_files import show_id

_DASH: Final = 62
"""The first six bits of an id whose text begins with "-"."""
_RANDOM_BITS: Final = ~(0xF << 76 | 0x3 << 62)
_VERSION_BITS: Final = 0x4 << 76 | 0x2 << 62
"""Version 4 and the variant of RFC 9562."""


def random_id(random_bytes: Callable[[int], bytes] = secrets.token_bytes) -> bytes:
    """Return a random UUID as 16 bytes. Its text never begins with "-", like a command-line option."""
    while True:
        number = int.from_bytes(random_bytes(16), "big")
        if number >> 122 != _DASH:
            return (number & _RANDOM_BITS | _VERSION_BITS).to_bytes(16, "big")


def random_cluster_id() -> str:
    return show_id(random_id())
