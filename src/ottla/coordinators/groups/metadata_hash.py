"""A hash of the topics a group reads: when it changes, partitions must be assigned anew.

It is XXH3 (64 bits) over what Kafka 4.3 puts in: strings as UTF-16 with their length behind them, numbers in little
endian. A group that changes places between the two coordinators is therefore not rebalanced.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

import xxhash
from immutables import Map

from ottla.metadata.image.image import Image
from ottla.metadata.image.values import Broker, Topic

_KNOWN_TOPICS: Final = 4096
_MAGIC: Final = b"\x00"
_SIGN_BIT: Final = 1 << 63
_long = struct.Struct("<q")
_int = struct.Struct("<i")
_head = struct.Struct("<qq")
_id = struct.Struct(">qq")


class _Known(NamedTuple):
    """A hash, and what it was made of. Images share what did not change, so that a look at the objects is enough."""

    topic: Topic
    brokers: Map[int, Broker]
    value: int


_known: Final[dict[bytes, _Known]] = {}


def topics_hash(names: Iterable[str], image: Image) -> int:
    """The hash of all those topics that are there; 0 of none."""
    found = [topic for name in sorted(names) if (topic := image.topic(name)) is not None]
    if not found:
        return 0
    return _signed(xxhash.xxh3_64(b"".join(_long.pack(topic_hash(topic, image)) for topic in found)).intdigest())


def topic_hash(topic: Topic, image: Image) -> int:
    """The hash of one topic: its id, its name, its partitions and the racks of their replicas."""
    known = _known.get(topic.id)
    if known is not None and known.topic is topic and known.brokers is image.brokers:
        return known.value
    if len(_known) >= _KNOWN_TOPICS:
        _known.clear()
    value = _topic_hash(topic, image)
    _known[topic.id] = _Known(topic, image.brokers, value)
    return value


def _topic_hash(topic: Topic, image: Image) -> int:
    parts = [_MAGIC, _head.pack(*_id.unpack(topic.id)), _text(topic.name), _int.pack(len(topic.partitions))]
    racks: dict[tuple[int, ...], bytes] = {}  # most partitions share their replicas with others
    for number, partition in enumerate(topic.partitions):
        replicas = partition.replicas
        if replicas not in racks:
            racks[replicas] = _racks(replicas, image)
        parts += (_int.pack(number), racks[replicas])
    return _signed(xxhash.xxh3_64(b"".join(parts)).intdigest())


def _racks(replicas: Iterable[int], image: Image) -> bytes:
    brokers = (image.broker(broker_id) for broker_id in replicas)
    racks = [broker.rack for broker in brokers if broker is not None and broker.rack is not None]
    # By Java's order of strings; a rack counts as often as it has replicas.
    ordered = sorted(racks, key=lambda rack: rack.encode("utf-16-be", "surrogatepass"))
    return b"".join(_int.pack(_length(rack)) + _text(rack) for rack in ordered)


def _text(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass") + _int.pack(_length(text))


def _length(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _signed(value: int) -> int:
    return value - (_SIGN_BIT << 1) if value & _SIGN_BIT else value
