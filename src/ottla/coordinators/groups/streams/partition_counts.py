"""How many partitions the internal topics of a topology must have.

A repartition topic has as many as it is told to, or as the widest topic that is read by whoever writes to it; those
that are read together with others must fit these. A changelog has one for each task.
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
    """What members are told beside their assignment, by Kafka's numbers."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class TopicProblem(Exception):
    """The topics of a topology are not as they must be; its members are told, and wait."""

    def __init__(self, status: StreamsStatus, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class PartitionCounts:
    """The partitions of topics, those that are there and those that were decided upon."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._decided: dict[str, int] = {}

    def find_count(self, topic: str) -> int | None:
        """How many partitions a topic has or should have."""
        found = self._image.topic(topic)
        return self._decided.get(topic) if found is None else len(found.partitions)

    def count(self, topic: str) -> int:
        count = self.find_count(topic)
        if count is None:
            raise UnknownServerError(f"nothing says how many partitions {topic} should have")
        return count

    def decided_count(self, topic: str) -> int:
        """What was decided upon, also if the topic is there and is otherwise."""
        if topic not in self._decided:
            raise UnknownServerError(f"nothing says how many partitions {topic} should have")
        return self._decided[topic]

    def decide(self, topology: Topology, together: Sequence[Collection[str]]) -> None:
        """Decide for all internal topics; raises TopicProblem or StreamsInvalidTopology."""
        self._decided.update(self._repartitioned(topology))
        sources = [topic for each in topology.in_order for topic in each.repartition_source_topics]
        fixed = list(dict.fromkeys(topic.name for topic in sources if topic.partitions != 0))
        flexible = {topic.name for topic in sources if topic.partitions == 0}
        for group in together:
            self._fit_together(group, fixed, flexible)
        self._decide_changelogs(topology.in_order)

    def _repartitioned(self, topology: Topology) -> dict[str, int]:
        """Repartition topics before they are fitted together; sinks are gone through until nothing is left to find."""
        counts: dict[str, int] = {}
        for each in topology.in_order:
            counts.update(
                (topic.name, topic.partitions) for topic in each.repartition_source_topics if topic.partitions
            )
        while True:
            is_missing = has_found = False
            for each in topology.in_order:
                for sink in each.repartition_sink_topics:
                    if sink in counts:
                        continue
                    widest = self._widest(each, counts)
                    if widest is None:
                        is_missing = True
                    else:
                        counts[sink] = widest
                        has_found = True
            if not is_missing:
                break
            if not has_found:
                raise StreamsInvalidTopology(
                    "Failed to compute number of partitions for all repartition topics. There may be loops in the "
                    "topology that cannot be resolved."
                )
        for each in topology.in_order:
            if any(topic.name not in counts for topic in each.repartition_source_topics):
                raise StreamsInvalidTopology(
                    "Failed to compute number of partitions for all repartition topics, because a repartition source "
                    "topic is never used as a sink topic."
                )
        return counts

    def _widest(self, subtopology: Subtopology, counts: dict[str, int]) -> int | None:
        found = [counts.get(topic.name) for topic in subtopology.repartition_source_topics]
        found += [self.find_count(topic) for topic in subtopology.source_topics]
        return max((count for count in found if count is not None), default=None)

    def _fit_together(self, group: Collection[str], fixed: Sequence[str], flexible: Collection[str]) -> None:
        """Let topics that are read together have the same number of partitions; raises TopicProblem if they cannot."""
        if not group:
            return
        found = sorted(topic for topic in group if topic in fixed or topic in flexible)
        # Of several that do not fit Kafka names the first in a hash table of Java's.
        repartitioned = {
            topic: self.count(topic) for topic in hash_order(found, string_hash, grown_table_size(len(found)))
        }
        others = {topic: self.count(topic) for topic in group if topic not in repartitioned}
        if others:
            count = _same(others, others)
        elif fixed:
            count = _same({topic: self.count(topic) for topic in fixed}, repartitioned)
        else:
            count = max(repartitioned.values())
        for topic, has in repartitioned.items():
            if topic in fixed and has != count:
                raise TopicProblem(
                    StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
                    f"Number of partitions [{has}] of repartition topic [{topic}] doesn't match number of partitions "
                    f"[{count}] of the source topic.",
                )
        self._decided.update(dict.fromkeys(repartitioned, count))

    def _decide_changelogs(self, subtopologies: Sequence[Subtopology]) -> None:
        changelogs: dict[str, int] = {}
        for each in subtopologies:
            counts = [self.count(topic) for topic in source_names(each)]
            if not counts:
                raise StreamsInvalidTopology(f"No source topics found for subtopology {each.subtopology_id}")
            changelogs.update((topic.name, max(counts)) for topic in each.state_changelog_topics)
        self._decided.update(changelogs)


def copartition_groups(topology: Topology) -> list[Collection[str]]:
    """The topics that must have the same number of partitions, group by group."""
    return [_named(each, group) for each in topology.in_order for group in each.copartition_groups]


def _named(subtopology: Subtopology, group: CopartitionGroup) -> set[str]:
    names = set()
    for numbers, topics in (
        (group.source_topics, subtopology.source_topics),
        (group.repartition_source_topics, [topic.name for topic in subtopology.repartition_source_topics]),
    ):
        for each in numbers:
            if not 0 <= each < len(topics):
                raise UnknownServerError(f"subtopology {subtopology.subtopology_id} has no topic of number {each}")
            names.add(topics[each])
    return names


def _same(counts: dict[str, int], shown: dict[str, int]) -> int:
    """The number that all topics have; raises TopicProblem, which tells of some, if they differ."""
    first = next(iter(counts.values()))
    if any(count != first for count in counts.values()):
        text = ", ".join(f"{topic}={count}" for topic, count in sorted(shown.items()))
        raise TopicProblem(
            StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{text}}}]",
        )
    return first
