"""The topology of a streams application, as its members tell it and as the group's record keeps it.

A subtopology reads source topics and repartition topics, writes to repartition topics of others, and keeps its state in
changelog topics. The latter two are internal: the coordinator has them made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ottla.protocol.errors import UnknownServerError
from ottla.protocol.java.hash_order import grown_table_size, hash_order, string_hash
from ottla.protocol.messages.records.streams_group_records import (
    CopartitionGroup,
    StreamsGroupTopologyValue,
    Subtopology,
    TopicConfig,
    TopicInfo,
)
from ottla.protocol.messages.rpc import streams_group_heartbeat as heard


@dataclass(frozen=True)
class Topology:
    """Subtopologies at an epoch. The messages in it are never changed."""

    epoch: int
    subtopologies: Mapping[str, Subtopology]

    @cached_property
    def in_order(self) -> Sequence[Subtopology]:
        """In the order in which Kafka's coordinator goes through them; some decisions depend on it."""
        ids = list(self.subtopologies)
        return [self.subtopologies[each] for each in hash_order(ids, string_hash, grown_table_size(len(ids)))]

    @cached_property
    def readers(self) -> Mapping[str, str]:
        """Which subtopology reads a topic."""
        found: dict[str, str] = {}
        for each in self.in_order:
            found.update(dict.fromkeys(source_names(each), each.subtopology_id))
        return found

    @cached_property
    def required_topics(self) -> Sequence[str]:
        """All topics that must be there, in the order of Kafka's set of them."""
        names: dict[str, None] = {}
        for each in self.in_order:
            names.update(dict.fromkeys(source_names(each)))
            names.update(dict.fromkeys(topic.name for topic in each.state_changelog_topics))
        return hash_order(names, string_hash, grown_table_size(len(names)))


def source_names(subtopology: Subtopology) -> list[str]:
    """The topics that a subtopology reads."""
    return [*subtopology.source_topics, *(topic.name for topic in subtopology.repartition_source_topics)]


def topology_of(value: StreamsGroupTopologyValue) -> Topology:
    """A topology as it is recorded; raises UnknownServerError if it cannot be one."""
    subtopologies = {each.subtopology_id: each for each in value.subtopologies}
    if value.epoch < 0:
        raise UnknownServerError("the epoch of a topology is not negative")
    if len(subtopologies) < len(value.subtopologies):
        raise UnknownServerError("two subtopologies have the same id")
    return Topology(value.epoch, subtopologies)


def recorded(topology: heard.Topology) -> StreamsGroupTopologyValue:
    """What is written of a topology that a member brings."""
    return StreamsGroupTopologyValue(
        epoch=topology.epoch,
        subtopologies=[
            Subtopology(
                subtopology_id=each.subtopology_id,
                source_topics=list(each.source_topics),
                source_topic_regex=list(each.source_topic_regex),
                state_changelog_topics=[_topic(topic) for topic in each.state_changelog_topics],
                repartition_sink_topics=list(each.repartition_sink_topics),
                repartition_source_topics=[_topic(topic) for topic in each.repartition_source_topics],
                copartition_groups=[
                    CopartitionGroup(
                        source_topics=list(group.source_topics),
                        source_topic_regex=list(group.source_topic_regex),
                        repartition_source_topics=list(group.repartition_source_topics),
                    )
                    for group in each.copartition_groups
                ],
            )
            for each in topology.subtopologies
        ],
    )


def _topic(topic: heard.TopicInfo) -> TopicInfo:
    return TopicInfo(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        topic_configs=[TopicConfig(key=each.key, value=each.value) for each in topic.topic_configs],
    )
