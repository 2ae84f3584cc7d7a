"""The topics that a flow reads, and its lag."""

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
        """Return the number of records after those that were read; raise ApiError."""
        cluster = shared_cluster(self.options.client)
        ends = cluster.ends(cluster.partitions(self.options.subscription))
        begins = cluster.begins([key for key in ends if key not in read])
        return sum(max(end - read.get(key, begins.get(key, 0)), 0) for key, end in ends.items())


def topic_sources(plan: Message) -> tuple[list[TopicSource], bool]:
    """Return the topics in a flow's plan, and whether it reads other streams; raise OptionError for wrong options."""
    streams = list(_streaming_sources(plan))
    topics = [source for source in streams if source.format == "ottla"]
    parsed = [TopicSource(parse_read_options(dict(source.options), streaming=True)) for source in topics]
    return parsed, len(topics) < len(streams)


def tables_read(plan: Message) -> set[str]:
    """Return the names of all tables in a flow's plan, as its author wrote them."""
    return {read.named_table.unparsed_identifier for read in _find_reads(plan) if read.HasField("named_table")}


def _streaming_sources(plan: Message) -> Iterator[Any]:
    """Return the data sources of all streaming reads in a plan, except tables."""
    return (read.data_source for read in _find_reads(plan) if read.is_streaming and read.HasField("data_source"))


def _find_reads(message: Message) -> Iterator[Any]:
    if isinstance(message, Read):
        yield message
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if isinstance(value, Message):
            yield from _find_reads(value)
        elif isinstance(value, Mapping) or hasattr(value, "items"):
            for item in value.values():
                if isinstance(item, Message):
                    yield from _find_reads(item)
        else:
            for item in value:
                yield from _find_reads(item)


def parse_offsets(text: str | None) -> Offsets | None:
    """Return the offsets in the progress of a query, or None if its source is not a topic."""
    import json

    try:
        given = json.loads(text or "")
        return from_json(given) if isinstance(given, dict) else None
    except (ValueError, AttributeError, TypeError):
        return None
