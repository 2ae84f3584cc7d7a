"""The partition counts of a topology's internal topics.

A repartition topic has the count that the topology sets, or the largest count of the topics that its writers read. All
topics of a copartition group must have the same count. A changelog has one partition for each task. An existing
repartition topic keeps its count when the topics it is derived from grow.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import IntEnum

from ottla.coordinators.groups.streams.topology import Topology, source_names
from ottla.metadata.image.image import Image
from ottla.protocol.errors import StreamsInvalidTopology, UnknownServerError
from ottla.protocol.java.hash_order import grown_table_size, hash_order, string_hash
from ottla.protocol.messages.records.streams_group_records import CopartitionGroup, Subtopology


class StreamsStatus(IntEnum):
    """The status codes in heartbeat responses, by Kafka's numbers."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class TopicProblem(Exception):
    """The topics do not satisfy the topology. Members get the status and wait."""

    def __init__(self, status: StreamsStatus, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class PartitionCounts:
    """The partition counts of existing topics, and those decided for internal topics."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._decided: dict[str, int] = {}

    def find_count(self, topic: str) -> int | None:
        """Return the partition count of an existing topic, or the decided one; None if there is neither."""
        existing = self._image.topic(topic)
        return self._decided.get(topic) if existing is None else len(existing.partitions)

    def count(self, topic: str) -> int:
        """Return `find_count`; raise UnknownServerError if it is None."""
        count = self.find_count(topic)
        if count is None:
            raise UnknownServerError(f"the partition count of topic {topic} is unknown")
        return count

    def decided_count(self, topic: str) -> int:
        """Return the decided count, even if the topic exists with another one."""
        if topic not in self._decided:
            raise UnknownServerError(f"the partition count of topic {topic} is unknown")
        return self._decided[topic]

    def decide(self, topology: Topology, copartitioned: Sequence[Collection[str]]) -> None:
        """Decide the counts of all internal topics; raise TopicProblem or StreamsInvalidTopology."""
        self._decided.update(self._repartition_counts(topology))
        sources = [topic for subtopology in topology.in_order for topic in subtopology.repartition_source_topics]
        fixed = list(dict.fromkeys(topic.name for topic in sources if topic.partitions != 0))
        flexible = {topic.name for topic in sources if topic.partitions == 0}
        for group in copartitioned:
            self._align_copartitioned(group, fixed, flexible)
        self._decide_changelogs(topology.in_order)

    def _repartition_counts(self, topology: Topology) -> dict[str, int]:
        """Return the counts of repartition topics before copartitioning, by passes over sinks until nothing changes."""
        counts: dict[str, int] = {}
        for subtopology in topology.in_order:
            counts.update(
                (topic.name, topic.partitions) for topic in subtopology.repartition_source_topics if topic.partitions
            )
        while True:
            is_incomplete = has_changed = False
            for subtopology in topology.in_order:
                for sink in subtopology.repartition_sink_topics:
                    if sink in counts:
                        continue
                    largest = self._largest_source_count(subtopology, counts)
                    if largest is None:
                        is_incomplete = True
                    else:
                        counts[sink] = largest
                        has_changed = True
            if not is_incomplete:
                break
            if not has_changed:
                raise StreamsInvalidTopology(
                    "Failed to compute number of partitions for all repartition topics. There may be loops in the "
                    "topology that cannot be resolved."
                )
        for subtopology in topology.in_order:
            if any(topic.name not in counts for topic in subtopology.repartition_source_topics):
                raise StreamsInvalidTopology(
                    "Failed to compute number of partitions for all repartition topics, because a repartition source "
                    "topic is never used as a sink topic."
                )
        return counts

    def _largest_source_count(self, subtopology: Subtopology, counts: dict[str, int]) -> int | None:
        source_counts = [counts.get(topic.name) for topic in subtopology.repartition_source_topics]
        source_counts += [self.find_count(topic) for topic in subtopology.source_topics]
        return max((count for count in source_counts if count is not None), default=None)

    def _align_copartitioned(self, group: Collection[str], fixed: Sequence[str], flexible: Collection[str]) -> None:
        """Give the topics of a copartition group the same count; raise TopicProblem if that is impossible."""
        if not group:
            return
        names = sorted(topic for topic in group if topic in fixed or topic in flexible)
        # Of several mismatches Kafka reports the first in the order of Java's HashMap.
        repartitioned = {
            topic: self.count(topic) for topic in hash_order(names, string_hash, grown_table_size(len(names)))
        }
        others = {topic: self.count(topic) for topic in group if topic not in repartitioned}
        if others:
            count = _common_count(others, others)
        elif fixed:
            count = _common_count({topic: self.count(topic) for topic in fixed}, repartitioned)
        else:
            count = max(repartitioned.values())
        for topic, topic_count in repartitioned.items():
            if topic in fixed and topic_count != count:
                raise TopicProblem(
                    StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Number of partitions [{topic_count}] of repartition topic [{topic}] doesn't match number of "
                    f"partitions [{count}] of the source topic.",
                )
        self._decided.update(dict.fromkeys(repartitioned, count))

    def _decide_changelogs(self, subtopologies: Sequence[Subtopology]) -> None:
        changelogs: dict[str, int] = {}
        for subtopology in subtopologies:
            counts = [self.count(topic) for topic in source_names(subtopology)]
            if not counts:
                raise StreamsInvalidTopology(f"No source topics found for subtopology {subtopology.subtopology_id}")
            changelogs.update((topic.name, max(counts)) for topic in subtopology.state_changelog_topics)
        self._decided.update(changelogs)


def copartition_groups(topology: Topology) -> list[Collection[str]]:
    """Return the groups of topics that must have equal partition counts."""
    return [
        _group_topics(subtopology, group)
        for subtopology in topology.in_order
        for group in subtopology.copartition_groups
    ]


def _group_topics(subtopology: Subtopology, group: CopartitionGroup) -> set[str]:
    names = set()
    for numbers, topics in (
        (group.source_topics, subtopology.source_topics),
        (group.repartition_source_topics, [topic.name for topic in subtopology.repartition_source_topics]),
    ):
        for number in numbers:
            if not 0 <= number < len(topics):
                raise UnknownServerError(f"subtopology {subtopology.subtopology_id} has no topic with index {number}")
            names.add(topics[number])
    return names


def _common_count(counts: dict[str, int], reported: dict[str, int]) -> int:
    """Return the count of all topics; raise TopicProblem, which lists `reported`, if they differ."""
    first = next(iter(counts.values()))
    if any(count != first for count in counts.values()):
        text = ", ".join(f"{topic}={count}" for topic, count in sorted(reported.items()))
        raise TopicProblem(
            StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{text}}}]",
        )
    return first
