"""A topology held against the topics that there are: how many tasks it has, and which topics must be made for it."""

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
_NAMED: Final = 3
"""How many topics a message names."""


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A repartition or changelog topic as it must be."""

    name: str
    partitions: int
    replication_factor: int
    """0 if that is left to the cluster."""
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ConfiguredSubtopology:
    """A subtopology with numbers."""

    tasks: int
    source_topics: frozenset[str]
    repartition_sources: Mapping[str, InternalTopic]
    repartition_sinks: frozenset[str]
    changelogs: Mapping[str, InternalTopic]

    @property
    def is_stateful(self) -> bool:
        return bool(self.changelogs)


@dataclass(frozen=True, slots=True)
class Configured:
    """What came out for a topology."""

    topology_epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology] | None
    """By id, sorted; None if source topics are missing or topics do not fit together."""
    missing: Sequence[CreatableTopic] = ()
    problem: TopicProblem | None = None

    @property
    def is_ready(self) -> bool:
        """Whether tasks can be assigned."""
        return self.problem is None


def configure(topology: Topology, image: Image) -> Configured:
    """Hold a topology against the topics; raises StreamsInvalidTopology if it cannot be right whatever there is."""
    counts, together = PartitionCounts(image), copartition_groups(topology)
    try:
        _check_sources(topology, image)
        counts.decide(topology, together)
        subtopologies = {
            subtopology_id: _configured(topology.subtopologies[subtopology_id], counts)
            for subtopology_id in sorted(topology.subtopologies)
        }
        missing = _missing(topology, subtopologies, image)
    except TopicProblem as problem:
        return Configured(topology.epoch, None, problem=problem)
    if not missing:
        return Configured(topology.epoch, subtopologies)
    names = _named([topic.name for topic in missing])
    incomplete = TopicProblem(StreamsStatus.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {names}")
    return Configured(topology.epoch, subtopologies, missing, incomplete)


def _check_sources(topology: Topology, image: Image) -> None:
    missing = {topic for each in topology.in_order for topic in each.source_topics if image.topic(topic) is None}
    if missing:
        raise TopicProblem(StreamsStatus.MISSING_SOURCE_TOPICS, f"Source topics {_named(sorted(missing))} are missing.")


def _configured(subtopology: Subtopology, counts: PartitionCounts) -> ConfiguredSubtopology:
    return ConfiguredSubtopology(
        tasks=max(counts.count(topic) for topic in source_names(subtopology)),
        source_topics=frozenset(subtopology.source_topics),
        repartition_sources=_by_name(_internal(each, counts) for each in subtopology.repartition_source_topics),
        repartition_sinks=frozenset(subtopology.repartition_sink_topics),
        changelogs=_by_name(_internal(each, counts) for each in subtopology.state_changelog_topics),
    )


def _internal(topic: TopicInfo, counts: PartitionCounts) -> InternalTopic:
    partitions = topic.partitions or counts.decided_count(topic.name)
    configs = {each.key: each.value for each in topic.topic_configs}
    if partitions < 1:
        raise UnknownServerError(f"{topic.name} cannot have {partitions} partitions")
    if len(configs) < len(topic.topic_configs):
        raise UnknownServerError(f"a setting of {topic.name} is given twice")
    return InternalTopic(topic.name, partitions, topic.replication_factor, configs)


def _by_name(topics: Iterable[InternalTopic]) -> Mapping[str, InternalTopic]:
    found: dict[str, InternalTopic] = {}
    for topic in topics:
        if topic.name in found:
            raise UnknownServerError(f"a subtopology names {topic.name} twice")
        found[topic.name] = topic
    return found


def _missing(
    topology: Topology, subtopologies: Mapping[str, ConfiguredSubtopology], image: Image
) -> Sequence[CreatableTopic]:
    """The internal topics that are not there; raises TopicProblem if one has a wrong number of partitions."""
    wanted: dict[str, InternalTopic] = {}
    for each in subtopologies.values():
        wanted.update(each.repartition_sources)
        wanted.update(each.changelogs)
    in_order = hash_order(wanted, string_hash, grown_table_size(len(wanted)))
    there = set()
    for name in topology.required_topics:
        topic = image.topic(name)
        if topic is None or name not in wanted:
            continue
        there.add(name)
        if len(topic.partitions) != wanted[name].partitions:
            raise TopicProblem(
                StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: expected {wanted[name].partitions}, found "
                f"{len(topic.partitions)}",
            )
    return [_creatable(wanted[name]) for name in in_order if name not in there]


def _creatable(topic: InternalTopic) -> CreatableTopic:
    return CreatableTopic(
        name=topic.name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor or _CONTROLLERS_CHOICE,
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
    )


def _named(topics: Collection[str]) -> str:
    shown = ", ".join(list(topics)[:_NAMED])
    return shown if len(topics) <= _NAMED else f"{shown} and {len(topics) - _NAMED} additional topics"
