"""The traffic of topics: bytes, records, failed requests.

Incoming bytes are the growth of the logs since the last measurement, so that appending costs nothing. This counts all
appends, those of coordinators too, as Kafka does. Growth between the last measurement and the deletion of a partition
is lost. Outgoing bytes are counted when a response is searched for errors anyway.
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
    "bytes_in": ("bytesin", "Bytes appended as leader, by topic."),
    "records_in": ("messagesin", "Records appended as leader, by topic."),
    "bytes_out": ("bytesout", "Bytes sent to consumers, by topic."),
    "replicated_in": ("replicationbytesin", "Bytes appended as follower, by topic."),
    "replicated_out": ("replicationbytesout", "Bytes sent to followers, by topic."),
    "failed_produces": ("failedproducerequests", "Partitions that failed in Produce responses, by topic."),
    "failed_fetches": ("failedfetchrequests", "Partitions that failed in Fetch responses, by topic."),
}


class TopicTraffic:
    """The traffic of one topic."""

    __slots__ = tuple(_COLUMNS)

    def __init__(self) -> None:
        self.bytes_in = self.records_in = self.bytes_out = self.replicated_in = self.replicated_out = 0
        self.failed_produces = self.failed_fetches = 0


class _Mark(NamedTuple):
    """The end of a log at a measurement: its end offset, its last segment, and the size of that."""

    log: PartitionLog
    end_offset: int
    base_offset: int
    size: int


class TopicTrafficMeters:
    """The traffic of all topics that have partitions on this broker."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions
        self._by_name: dict[str, TopicTraffic] = {}
        self._by_key: dict[str | bytes, TopicTraffic] = {}
        """By name and by id, because requests have one or the other."""
        self._marks: dict[tuple[str, int], _Mark] | None = None

    def start(self) -> None:
        """Start measuring. The present contents of the logs do not count."""
        self._marks = {(partition.topic, partition.index): _mark(partition.log) for partition in self._partitions}

    def measure_growth(self) -> None:
        """Count the growth of the logs since the last measurement."""
        last_marks = self._marks
        if last_marks is None:
            return
        marks: dict[tuple[str, int], _Mark] = {}
        for partition in self._partitions:
            log, name = partition.log, (partition.topic, partition.index)
            mark = marks[name] = _mark(log)
            old = last_marks.get(name)
            if old is None or old.log is not log:
                old = _Mark(log, log.log_start_offset, -1, 0)
            if mark[1:] == old[1:]:
                continue
            traffic = self._by_name.get(partition.topic) or self._start_topic(partition.topic)
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

    def count_produce_response(self, note: Any, response: Any) -> None:
        """Count the failed partitions of a Produce response."""
        for topic in response.responses:
            for answer in topic.partition_responses:
                if answer.error_code:
                    self._count_failures(note, response)
                    return

    def count_fetch_response(self, note: Any, response: Any) -> None:
        """Count the bytes and the failed partitions of a Fetch response."""
        failed = response.error_code
        for topic in response.responses:
            size = 0
            for answer in topic.partitions:
                if answer.error_code:
                    failed = True
                elif answer.records is not None:
                    size += len(answer.records)
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
        """Yield all counts by topic."""
        self.measure_growth()
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
        """Return the traffic of a topic that was not counted yet; None if the topic does not exist."""
        image: Image = self._partitions.image
        topic = image.topics.get(key) if isinstance(key, str) else image.topics_by_id.get(key)
        if topic is None:
            return None
        return self._by_name.get(topic.name) or self._start_topic(topic.name)

    def _start_topic(self, name: str) -> TopicTraffic:
        traffic = self._by_name[name] = self._by_key[name] = TopicTraffic()
        topic = self._partitions.image.topics.get(name)
        if topic is not None:
            self._by_key[topic.id] = traffic
        return traffic


def _mark(log: PartitionLog) -> _Mark:
    last = log.segments[-1]
    return _Mark(log, log.log_end_offset, last.base_offset, last.size)


def _grown(log: PartitionLog, old: _Mark) -> int:
    """Return the bytes appended since a mark: in the segment that was the last one, and in all later ones."""
    grown = 0
    for segment in reversed(log.segments):
        if segment.base_offset < old.base_offset:
            break
        grown += segment.size - old.size if segment.base_offset == old.base_offset else segment.size
    return max(grown, 0)
