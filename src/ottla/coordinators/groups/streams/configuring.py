"""Configuration of a topology: its tasks, and the internal topics to create, given the existing topics."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.coordinators.groups.streams.partition_counts import (
    PartitionCounts,
    StreamsStatus,
    TopicProblem,
    copartition_groups,
)
from ottla.coordinators.groups.streams.topology import Topology, source_names
from ottla.metadata.image.image import Image
from ottla.protocol.errors import UnknownServerError
from ottla.protocol.java.hash_order import grown_table_size, hash_order, string_hash
from ottla.protocol.messages.records.streams_group_records import Subtopology, TopicInfo
from ottla.protocol.messages.rpc.create_topics import CreatableTopic, CreatableTopicConfig

_CONTROLLERS_CHOICE: Final = -1
_MAX_NAMED_TOPICS: Final = 3
"""The number of topics that a message names."""


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """The required configuration of a repartition or changelog topic."""

    name: str
    partitions: int
    replication_factor: int
    """0 for the cluster's default."""
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ConfiguredSubtopology:
    """A subtopology with partition counts."""

    tasks: int
    source_topics: frozenset[str]
    repartition_sources: Mapping[str, InternalTopic]
    repartition_sinks: frozenset[str]
    changelogs: Mapping[str, InternalTopic]

    @property
    def is_stateful(self) -> bool:
        return bool(self.changelogs)


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    """The result of configuring a topology."""

    topology_epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology] | None
    """By id, sorted; None if source topics are missing or partition counts do not match."""
    missing: Sequence[CreatableTopic] = ()
    problem: TopicProblem | None = None

    @property
    def is_ready(self) -> bool:
        """Whether tasks can be assigned."""
        return self.problem is None


def configure(topology: Topology, image: Image) -> ConfiguredTopology:
    """Configure a topology; raise StreamsInvalidTopology if no set of topics could satisfy it."""
    counts, copartitioned = PartitionCounts(image), copartition_groups(topology)
    try:
        _check_sources(topology, image)
        counts.decide(topology, copartitioned)
        subtopologies = {
            subtopology_id: _configure_subtopology(topology.subtopologies[subtopology_id], counts)
            for subtopology_id in sorted(topology.subtopologies)
        }
        missing = _missing_topics(topology, subtopologies, image)
    except TopicProblem as problem:
        return ConfiguredTopology(topology.epoch, None, problem=problem)
    if not missing:
        return ConfiguredTopology(topology.epoch, subtopologies)
    names = _format_topics([topic.name for topic in missing])
    incomplete = TopicProblem(StreamsStatus.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {names}")
    return ConfiguredTopology(topology.epoch, subtopologies, missing, incomplete)


def _check_sources(topology: Topology, image: Image) -> None:
    missing = {
        topic for subtopology in topology.in_order for topic in subtopology.source_topics if image.topic(topic) is None
    }
    if missing:
        raise TopicProblem(
            StreamsStatus.MISSING_SOURCE_TOPICS, f"Source topics {_format_topics(sorted(missing))} are missing."
        )


def _configure_subtopology(subtopology: Subtopology, counts: PartitionCounts) -> ConfiguredSubtopology:
    return ConfiguredSubtopology(
        tasks=max(counts.count(topic) for topic in source_names(subtopology)),
        source_topics=frozenset(subtopology.source_topics),
        repartition_sources=_by_name(_internal_topic(topic, counts) for topic in subtopology.repartition_source_topics),
        repartition_sinks=frozenset(subtopology.repartition_sink_topics),
        changelogs=_by_name(_internal_topic(topic, counts) for topic in subtopology.state_changelog_topics),
    )


def _internal_topic(topic: TopicInfo, counts: PartitionCounts) -> InternalTopic:
    partitions = topic.partitions or counts.decided_count(topic.name)
    configs = {config.key: config.value for config in topic.topic_configs}
    if partitions < 1:
        raise UnknownServerError(f"internal topic {topic.name} cannot have {partitions} partitions")
    if len(configs) < len(topic.topic_configs):
        raise UnknownServerError(f"internal topic {topic.name} has a setting twice")
    return InternalTopic(topic.name, partitions, topic.replication_factor, configs)


def _by_name(topics: Iterable[InternalTopic]) -> Mapping[str, InternalTopic]:
    by_name: dict[str, InternalTopic] = {}
    for topic in topics:
        if topic.name in by_name:
            raise UnknownServerError(f"a subtopology names internal topic {topic.name} twice")
        by_name[topic.name] = topic
    return by_name


def _missing_topics(
    topology: Topology, subtopologies: Mapping[str, ConfiguredSubtopology], image: Image
) -> Sequence[CreatableTopic]:
    """Return the internal topics to create; raise TopicProblem if one has a wrong number of partitions."""
    required: dict[str, InternalTopic] = {}
    for subtopology in subtopologies.values():
        required.update(subtopology.repartition_sources)
        required.update(subtopology.changelogs)
    in_order = hash_order(required, string_hash, grown_table_size(len(required)))
    existing = set()
    for name in topology.required_topics:
        topic = image.topic(name)
        if topic is None or name not in required:
            continue
        existing.add(name)
        if len(topic.partitions) != required[name].partitions:
            raise TopicProblem(
                StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: expected {required[name].partitions}, "
                f"found {len(topic.partitions)}",
            )
    return [_creatable(required[name]) for name in in_order if name not in existing]


def _creatable(topic: InternalTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor or _CONTROLLERS_CHOICE,
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )


def _format_topics(topics: Collection[str]) -> str:
    names = ", ".join(list(topics)[:_MAX_NAMED_TOPICS])
    return (
        names
        if len(topics) <= _MAX_NAMED_TOPICS
        else f"{names} and {len(topics) - _MAX_NAMED_TOPICS} additional topics"
    )
