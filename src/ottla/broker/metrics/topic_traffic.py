"""What goes in and out of topics: bytes, records, failed requests.

What came in is read off the logs, from their growth since the last look, so that appending costs nothing; this counts
all appends, those of coordinators too, as Kafka does. Growth between the last look and the deletion of a partition is
lost. What went out is counted when an answer is looked at for errors anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ottla.broker.metrics.family import Family, counter
from ottla.metadata.image.image import Image
from ottla.metadata.image.values import Topic
from ottla.replication.partitions import Partitions
from ottla.storage.log.partition_log import PartitionLog

_COLUMNS = {
    "bytes_in": ("bytesin", "Bytes appended as leader."),
    "records_in": ("messagesin", "Records appended as leader."),
    "bytes_out": ("bytesout", "Bytes given to consumers."),
    "replicated_in": ("replicationbytesin", "Bytes appended as follower."),
    "replicated_out": ("replicationbytesout", "Bytes given to followers."),
    "failed_produces": ("failedproducerequests", "Partitions in answers to Produce that were refused."),
    "failed_fetches": ("failedfetchrequests", "Partitions in answers to Fetch that were refused."),
}


class TopicTraffic:
    """What a topic has taken and given."""

    __slots__ = tuple(_COLUMNS)

    def __init__(self) -> None:
        self.bytes_in = self.records_in = self.bytes_out = self.replicated_in = self.replicated_out = 0
        self.failed_produces = self.failed_fetches = 0


class _Mark(NamedTuple):
    """How far a log had come: its end, its last segment, and how large that was."""

    log: PartitionLog
    end_offset: int
    base_offset: int
    size: int


class TopicTrafficMeters:
    """The traffic of all topics of which this broker holds partitions."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions
        self._by_name: dict[str, TopicTraffic] = {}
        self._by_key: dict[str | bytes, TopicTraffic] = {}
        """By name and by id, as requests have them."""
        self._marks: dict[tuple[str, int], _Mark] | None = None

    def begin(self) -> None:
        """From now on logs grow by what comes in; what they hold already came before."""
        self._marks = {(each.topic, each.index): _mark(each.log) for each in self._partitions}

    def look_at(self) -> None:
        """Add what the logs have grown by since the last time."""
        known = self._marks
        if known is None:
            return
        marks: dict[tuple[str, int], _Mark] = {}
        for partition in self._partitions:
            log, name = partition.log, (partition.topic, partition.index)
            mark = marks[name] = _mark(log)
            old = known.get(name)
            if old is None or old.log is not log:
                old = _Mark(log, log.log_start_offset, -1, 0)
            if mark[1:] == old[1:]:
                continue
            traffic = self._by_name.get(partition.topic) or self._begin(partition.topic)
            grown = _grown(log, old)
            if partition.is_leader:
                traffic.bytes_in += grown
                traffic.records_in += max(mark.end_offset - old.end_offset, 0)
            else:
                traffic.replicated_in += grown
        self._marks = marks

    def forget(self, topics: Iterable[Topic]) -> None:
        """Drop the counts of topics that were deleted."""
        for topic in topics:
            self._by_name.pop(topic.name, None)
            self._by_key.pop(topic.name, None)
            self._by_key.pop(topic.id, None)
            if self._marks is not None:
                for number in range(len(topic.partitions)):
                    self._marks.pop((topic.name, number), None)

    def look_at_produce(self, note: Any, response: Any) -> None:
        """An answer to Produce is about to be sent."""
        for topic in response.responses:
            for answer in topic.partition_responses:
                if answer.error_code:
                    self._count_failures(note, response)
                    return

    def look_at_fetch(self, note: Any, response: Any) -> None:
        """An answer to Fetch is about to be sent."""
        failed = response.error_code
        for topic in response.responses:
            size = 0
            for answer in topic.partitions:
                if answer.records:
                    size += len(answer.records)
                elif answer.error_code:
                    failed = True
            if size:
                key = topic.topic or topic.topic_id
                traffic = self._by_key.get(key) or self._find(key)
                if traffic is None:
                    continue
                if note.is_follower:
                    traffic.replicated_out += size
                else:
                    traffic.bytes_out += size
        if failed:
            self._count_failed_fetches(note, response)

    def families(self) -> Iterator[Family]:
        """All counts by topic."""
        self.look_at()
        for column, (name, what) in _COLUMNS.items():
            family = counter(f"kafka_server_brokertopicmetrics_{name}_total", what)
            for topic, traffic in sorted(self._by_name.items()):
                family.add(getattr(traffic, column), {"topic": topic})
            yield family

    def _count_failures(self, note: Any, response: Any) -> None:
        codes = set()
        for topic in response.responses:
            traffic = self._find(topic.name or topic.topic_id)
            for answer in topic.partition_responses:
                if answer.error_code:
                    codes.add(answer.error_code)
                    if traffic is not None:
                        traffic.failed_produces += 1
        note.failed(codes)

    def _count_failed_fetches(self, note: Any, response: Any) -> None:
        codes = {response.error_code} - {0}
        for topic in response.responses:
            traffic = self._find(topic.topic or topic.topic_id)
            for answer in topic.partitions:
                if answer.error_code:
                    codes.add(answer.error_code)
                    if traffic is not None:
                        traffic.failed_fetches += 1
        note.failed(codes)

    def _find(self, key: str | bytes) -> TopicTraffic | None:
        """The traffic of a topic that is asked for the first time; None if there is none: clients may ask anything."""
        image: Image = self._partitions.image
        topic = image.topics.get(key) if isinstance(key, str) else image.topics_by_id.get(key)
        if topic is None:
            return None
        return self._by_name.get(topic.name) or self._begin(topic.name)

    def _begin(self, name: str) -> TopicTraffic:
        traffic = self._by_name[name] = self._by_key[name] = TopicTraffic()
        topic = self._partitions.image.topics.get(name)
        if topic is not None:
            self._by_key[topic.id] = traffic
        return traffic


def _mark(log: PartitionLog) -> _Mark:
    last = log.segments[-1]
    return _Mark(log, log.log_end_offset, last.base_offset, last.size)


def _grown(log: PartitionLog, old: _Mark) -> int:
    """Bytes that were appended since: the rest of the segment that was the last one, and all later segments."""
    grown = 0
    for segment in reversed(log.segments):
        if segment.base_offset < old.base_offset:
            break
        grown += segment.size - old.size if segment.base_offset == old.base_offset else segment.size
    return max(grown, 0)
