"""Which topics a flow reads, and how many of their records it has not read yet."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from google.protobuf.message import Message
from pyspark.sql.connect.proto import Read

from ottla.spark.connector.cluster import shared_cluster
from ottla.spark.connector.positions import Offsets, from_json
from ottla.spark.connector.read_options import ReadOptions, parse_read_options


class TopicSource(NamedTuple):
    """A stream of topics that a flow reads."""

    options: ReadOptions

    def lag(self, read: Offsets) -> int:
        """How many records lie behind what was read; raises ApiError."""
        cluster = shared_cluster(self.options.client)
        ends = cluster.ends(cluster.partitions(self.options.subscription))
        begins = cluster.begins([key for key in ends if key not in read])
        return sum(max(end - read.get(key, begins.get(key, 0)), 0) for key, end in ends.items())


def topic_sources(plan: Message) -> tuple[list[TopicSource], bool]:
    """The topics in a flow's plan, and whether it has other streams; raises OptionError for what is not in order."""
    streams = list(_data_sources(plan))
    topics = [each for each in streams if each.format == "ottla"]
    parsed = [TopicSource(parse_read_options(dict(each.options), streaming=True)) for each in topics]
    return parsed, len(topics) < len(streams)


def tables_read(plan: Message) -> set[str]:
    """The names of all tables in a flow's plan, as its author wrote them."""
    return {each.named_table.unparsed_identifier for each in _reads(plan) if each.HasField("named_table")}


def _data_sources(plan: Message) -> Iterator[Any]:
    """All streaming reads within a plan that are no tables."""
    return (each.data_source for each in _reads(plan) if each.is_streaming and each.HasField("data_source"))


def _reads(message: Message) -> Iterator[Any]:
    if isinstance(message, Read):
        yield message
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if isinstance(value, Message):
            yield from _reads(value)
        elif isinstance(value, Mapping) or hasattr(value, "items"):
            for each in value.values():
                if isinstance(each, Message):
                    yield from _reads(each)
        else:
            for each in value:
                yield from _reads(each)


def offsets_of(text: str | None) -> Offsets | None:
    """A source's offset as progress has it, if it is one of topics."""
    import json

    try:
        given = json.loads(text or "")
        return from_json(given) if isinstance(given, dict) else None
    except (ValueError, AttributeError, TypeError):
        return None
