"""The topology of a streams application, as members send it and as the group's record stores it.

A subtopology reads source topics and repartition topics, writes to repartition topics of other subtopologies, and keeps
its state in changelog topics. The broker creates repartition and changelog topics: they are internal.
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
from ottla.protocol.messages.rpc import streams_group_heartbeat as heartbeat


@dataclass(frozen=True)
class Topology:
    """The subtopologies at an epoch. The messages in it are never modified."""

    epoch: int
    subtopologies: Mapping[str, Subtopology]

    @cached_property
    def in_order(self) -> Sequence[Subtopology]:
        """The subtopologies in the iteration order of Kafka's coordinator, on which some decisions depend."""
        ids = list(self.subtopologies)
        return [
            self.subtopologies[subtopology_id]
            for subtopology_id in hash_order(ids, string_hash, grown_table_size(len(ids)))
        ]

    @cached_property
    def readers(self) -> Mapping[str, str]:
        """The id of the subtopology that reads a topic."""
        readers: dict[str, str] = {}
        for subtopology in self.in_order:
            readers.update(dict.fromkeys(source_names(subtopology), subtopology.subtopology_id))
        return readers

    @cached_property
    def required_topics(self) -> Sequence[str]:
        """All topics that must exist, in the iteration order of Kafka's set."""
        names: dict[str, None] = {}
        for subtopology in self.in_order:
            names.update(dict.fromkeys(source_names(subtopology)))
            names.update(dict.fromkeys(topic.name for topic in subtopology.state_changelog_topics))
        return hash_order(names, string_hash, grown_table_size(len(names)))


def source_names(subtopology: Subtopology) -> list[str]:
    """Return the topics that a subtopology reads."""
    return [*subtopology.source_topics, *(topic.name for topic in subtopology.repartition_source_topics)]


def read_topology(value: StreamsGroupTopologyValue) -> Topology:
    """Return the topology of a record; raise UnknownServerError if it is invalid."""
    subtopologies = {subtopology.subtopology_id: subtopology for subtopology in value.subtopologies}
    if value.epoch < 0:
        raise UnknownServerError(f"the topology epoch {value.epoch} is negative")
    if len(subtopologies) < len(value.subtopologies):
        raise UnknownServerError("two subtopologies of the topology have the same id")
    return Topology(value.epoch, subtopologies)


def topology_value(topology: heartbeat.Topology) -> StreamsGroupTopologyValue:
    """Return the record value of a topology that a member sent."""
    return StreamsGroupTopologyValue(
        epoch=topology.epoch,
        subtopologies=[
            Subtopology(
                subtopology_id=subtopology.subtopology_id,
                source_topics=list(subtopology.source_topics),
                source_topic_regex=list(subtopology.source_topic_regex),
                state_changelog_topics=[_topic(topic) for topic in subtopology.state_changelog_topics],
                repartition_sink_topics=list(subtopology.repartition_sink_topics),
                repartition_source_topics=[_topic(topic) for topic in subtopology.repartition_source_topics],
                copartition_groups=[
                    CopartitionGroup(
                        source_topics=list(group.source_topics),
                        source_topic_regex=list(group.source_topic_regex),
                        repartition_source_topics=list(group.repartition_source_topics),
                    )
                    for group in subtopology.copartition_groups
                ],
            )
            for subtopology in topology.subtopologies
        ],
    )


def _topic(topic: heartbeat.TopicInfo) -> TopicInfo:
    return TopicInfo(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        topic_configs=[TopicConfig(key=config.key, value=config.value) for config in topic.topic_configs],
    )
