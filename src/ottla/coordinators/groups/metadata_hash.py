"""The hash of the topics that a group is subscribed to. A new hash means that partitions must be reassigned.

It is XXH3 (64 bits) over the same bytes as in Kafka 4.3: strings in UTF-16 followed by their length, integers in little
endian. A group that moves between coordinators of Kafka and Ottla is therefore not rebalanced.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

import xxhash
from immutables import Map

from ottla.metadata.image.image import Image
from ottla.metadata.image.values import Broker, Topic

_CACHED_TOPICS: Final = 4096
_MAGIC: Final = b"\x00"
_SIGN_BIT: Final = 1 << 63
_long = struct.Struct("<q")
_int = struct.Struct("<i")
_head = struct.Struct("<qq")
_id = struct.Struct(">qq")


class _CachedHash(NamedTuple):
    """A hash and its inputs. Images share unchanged parts, so comparing the objects' identity is enough."""

    topic: Topic
    brokers: Map[int, Broker]
    value: int


_cache: Final[dict[bytes, _CachedHash]] = {}


def topics_hash(names: Iterable[str], image: Image) -> int:
    """Return the hash of the topics that exist; 0 if none does."""
    topics = [topic for name in sorted(names) if (topic := image.topic(name)) is not None]
    if not topics:
        return 0
    return _signed(xxhash.xxh3_64(b"".join(_long.pack(topic_hash(topic, image)) for topic in topics)).intdigest())


def topic_hash(topic: Topic, image: Image) -> int:
    """Return the hash of one topic: its id, name, partitions and the racks of their replicas."""
    cached = _cache.get(topic.id)
    if cached is not None and cached.topic is topic and cached.brokers is image.brokers:
        return cached.value
    if len(_cache) >= _CACHED_TOPICS:
        _cache.clear()
    value = _topic_hash(topic, image)
    _cache[topic.id] = _CachedHash(topic, image.brokers, value)
    return value


def _topic_hash(topic: Topic, image: Image) -> int:
    parts = [_MAGIC, _head.pack(*_id.unpack(topic.id)), _text(topic.name), _int.pack(len(topic.partitions))]
    racks: dict[tuple[int, ...], bytes] = {}  # by replicas, which most partitions share with others
    for number, partition in enumerate(topic.partitions):
        replicas = partition.replicas
        if replicas not in racks:
            racks[replicas] = _racks(replicas, image)
        parts += (_int.pack(number), racks[replicas])
    return _signed(xxhash.xxh3_64(b"".join(parts)).intdigest())


def _racks(replicas: Iterable[int], image: Image) -> bytes:
    brokers = (image.broker(broker_id) for broker_id in replicas)
    racks = [broker.rack for broker in brokers if broker is not None and broker.rack is not None]
    # In Java's order of strings; a rack counts once for each of its replicas.
    ordered = sorted(racks, key=lambda rack: rack.encode("utf-16-be", "surrogatepass"))
    return b"".join(_int.pack(_length(rack)) + _text(rack) for rack in ordered)


def _text(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass") + _int.pack(_length(text))


def _length(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _signed(value: int) -> int:
    return value - (_SIGN_BIT << 1) if value & _SIGN_BIT else value
