"""Normalizes the answers of two nodes, so that they can be compared.

`normalize` turns a decoded response into dictionaries, lists and plain values. Words replace ids, ports, sessions and
times (`topic t1`, `port of PLAINTEXT`, `a time`), error messages are left out unless a test compares them, record
batches become their headers and records, and lists of structs are sorted unless their order counts. `compare` then
reports every difference by its path.
"""

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Final

from ottla.protocol.wire.batch import LOG_APPEND_TIME_BIT, BatchHeader, check_crc, read_batches
from ottla.protocol.wire.declare import Schema, schema_of
from ottla.protocol.wire.errors import ProtocolError
from ottla.protocol.wire.records import read_records
from ottla.protocol.wire.shape import Array, Blob, Member, Shape, Struct, resolve
from ottla.protocol.wire.types import ZERO_UUID

CLOSED: Final = "closed"
"""Stands for an answer: the node closed the connection."""
SILENT: Final = "silent"
"""Stands for an answer: the node did not answer in time."""
NEAR_MS: Final = 120_000
IGNORED: Final = frozenset({"throttle_time_ms", "finalized_features_epoch", "broker_epoch", "metadata_offset"})
_RANDOM: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""The random part of a member id."""
SESSIONS: Final = frozenset({"session_id"})


class Messages(Enum):
    """The ways of comparing error messages."""

    IGNORED = "left out"
    LOOSELY = "there or not"
    EXACTLY = "word by word"


class NodeNames:
    """Names for the values that differ between nodes: topic ids, ports, and generated ids."""

    def __init__(self, ports: Mapping[str, int]) -> None:
        self.topics: dict[bytes, str] = {}
        self.ports = {port: name for name, port in ports.items()}
        self.generated: dict[str, str] = {}
        """Texts that the node generated, such as member ids, and what tests call them."""

    def learn(self, value: Any) -> None:
        """Remember the id of a topic if a struct has both its name and id, unless the id already has a name."""
        name, topic_id = getattr(value, "name", None), getattr(value, "topic_id", ZERO_UUID)
        if name and topic_id != ZERO_UUID:
            self.topics.setdefault(topic_id, name)


def normalize(
    response: Any,
    version: int,
    names: NodeNames,
    *,
    messages: Messages = Messages.IGNORED,
    ordered: Iterable[str] = (),
) -> Any:
    """Return a response as comparable plain values; `ordered` names the lists of structs whose order counts."""
    if isinstance(response, str):
        return response
    return _Normalizer(names, messages, frozenset(ordered)).struct(response, _shape(schema_of(type(response)), version))


@cache
def _shape(schema: Schema, version: int) -> Struct:
    return resolve(schema, version)


class _Normalizer:
    def __init__(self, names: NodeNames, messages: Messages, ordered: frozenset[str]) -> None:
        self.names = names
        self.messages = messages
        self.ordered = ordered

    def struct(self, value: Any, shape: Struct) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        self.names.learn(value)
        for member in (*shape.plain, *shape.tagged):
            if member.name in IGNORED:
                continue
            if member.name.endswith("error_message") and self.messages is Messages.IGNORED:
                continue
            fields[member.name] = self.member(getattr(value, member.name), member)
        if value.unknown_tags:
            fields["unknown_tags"] = dict(value.unknown_tags)
        return fields

    def member(self, value: Any, member: Member) -> Any:
        if value is None:
            return None
        name = member.name
        if name.endswith("error_message") and self.messages is Messages.LOOSELY:
            return "a message"
        return self.value(value, member.shape, name)

    def value(self, value: Any, shape: Shape, name: str) -> Any:
        match shape:
            case Struct():
                return self.struct(value, shape)
            case Array(element):
                elements = [self.value(item, element, name) for item in value]
                if isinstance(element, Struct) and name not in self.ordered:
                    elements = sorted(_merge_topics(elements), key=repr)
                return elements
            case Blob(records=True):
                return list(stored_batches(bytes(value)))
            case _:
                return self.plain(value, name)

    def plain(self, value: Any, name: str) -> Any:
        if isinstance(value, bytes) and len(value) == 16 and value != ZERO_UUID:
            topic = self.names.topics.get(value)
            if topic is not None:
                return f"topic {topic}"
            return "a directory" if "director" in name else value.hex()
        if isinstance(value, str) and value in self.names.generated:
            return self.names.generated[value]
        if isinstance(value, str):
            return _RANDOM.sub("(random)", value)
        if name.endswith("port") and value in self.names.ports:
            return f"port of {self.names.ports[value]}"
        if name in SESSIONS and value > 0:
            return "a session"
        if re.search(r"(time|timestamp)(_ms)?$", name) and is_near(value):
            return "a time"
        return value


def _merge_topics(topics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge entries of the same topic: Kafka's fetch starts a new entry when another topic comes between."""
    if not topics or "partitions" not in topics[0] or not {"topic", "topic_id"} & topics[0].keys():
        return topics
    merged: dict[str, dict[str, Any]] = {}
    for topic in topics:
        key = repr({name: value for name, value in topic.items() if name != "partitions"})
        if key in merged:
            merged[key]["partitions"] = sorted([*merged[key]["partitions"], *topic["partitions"]], key=repr)
        else:
            merged[key] = dict(topic)
    return list(merged.values())


def is_near(timestamp: int) -> bool:
    """Return whether a timestamp is close to the current time."""
    return abs(timestamp - time.time() * 1000) < NEAR_MS


def stored_batches(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the headers and records of stored batches, without compressed sizes, which may differ."""
    pos = 0
    try:
        for pos, header in read_batches(data, partial_tail=True):
            check_crc(data, pos, header)
            yield _batch(data, pos, header)
            pos += header.size_bytes
    except ProtocolError as error:
        yield {"malformed": str(error)}
    if pos < len(data):
        yield {"part of a batch": len(data) - pos}


def _batch(data: bytes, pos: int, header: BatchHeader) -> dict[str, Any]:
    fields: dict[str, Any] = {
        name: value for name, value in header._asdict().items() if name not in ("batch_length", "crc")
    }
    if not header.compression:
        fields["batch_length"] = header.batch_length
    if header.attributes & LOG_APPEND_TIME_BIT and is_near(header.max_timestamp):
        fields["max_timestamp"] = "a time"
    try:
        fields["records"] = [
            {**record._asdict(), "timestamp": fields["max_timestamp"]}
            if header.attributes & LOG_APPEND_TIME_BIT
            else record._asdict()
            for record in read_records(data, pos, header)
        ]
    except ProtocolError as error:
        fields["records"] = f"malformed: {error}"
        fields["bytes"] = data[pos + 61 : pos + header.size_bytes]
    return fields


def compare(kafka: Any, ottla: Any, *, ignoring: Iterable[str] = ()) -> list[str]:
    """Return every difference between two normalized values by its path, except paths that match a pattern.

    A path is like `topics[0].partitions[1].error_code`; a pattern may be a field's name, or a glob over the path.
    """
    return list(_differences(kafka, ottla, "", tuple(ignoring)))


def _differences(kafka: Any, ottla: Any, path: str, ignoring: tuple[str, ...]) -> Iterator[str]:
    if any(fnmatchcase(path, pattern) or path.rpartition(".")[2] == pattern for pattern in ignoring):
        return
    if isinstance(kafka, dict) and isinstance(ottla, dict):
        for name in {**kafka, **ottla}:
            inner = f"{path}.{name}" if path else str(name)
            missing = "(nothing)"
            yield from _differences(kafka.get(name, missing), ottla.get(name, missing), inner, ignoring)
    elif isinstance(kafka, list) and isinstance(ottla, list):
        if len(kafka) != len(ottla):
            only_kafka = [item for item in kafka if item not in ottla]
            only_ottla = [item for item in ottla if item not in kafka]
            sizes = f"{len(kafka)} in Kafka's, {len(ottla)} in Ottla's"
            yield f"{path}: {sizes}; only in Kafka's {_short(only_kafka)}, only in Ottla's {_short(only_ottla)}"
            return
        for number, (left, right) in enumerate(zip(kafka, ottla, strict=True)):
            yield from _differences(left, right, f"{path}[{number}]", ignoring)
    elif kafka != ottla:
        yield f"{path or 'answer'}: Kafka {_short(kafka)}, Ottla {_short(ottla)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 4000 else f"{text[:4000]}… ({len(text)} characters)"
