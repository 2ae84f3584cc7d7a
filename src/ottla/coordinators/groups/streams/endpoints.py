"""The partitions served at each member's endpoint, for interactive queries between members."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.coordinators.groups.streams.configuring import ConfiguredSubtopology, ConfiguredTopology
from ottla.coordinators.groups.streams.group import StreamsGroup
from ottla.coordinators.groups.streams.member import StreamsGroupMember
from ottla.metadata.image.image import Image
from ottla.protocol.messages.rpc.streams_group_heartbeat import Endpoint, EndpointToPartitions, TopicPartition


def endpoints_of(
    group: StreamsGroup, updated_member: StreamsGroupMember, configured: ConfiguredTopology, image: Image
) -> list[EndpointToPartitions]:
    """Return the partitions of each member with an endpoint; empty while the topology has no tasks."""
    subtopologies = configured.subtopologies
    if subtopologies is None:
        return []
    others = (member for member in group.members.values() if member.id != updated_member.id)
    return [
        EndpointToPartitions(
            user_endpoint=Endpoint(host=member.endpoint.host, port=member.endpoint.port),
            active_partitions=_partitions(member.assigned.active, subtopologies, image),
            standby_partitions=_partitions(member.assigned.standby, subtopologies, image),
        )
        for member in (*others, updated_member)
        if member.endpoint is not None
    ]


def _partitions(
    tasks: Mapping[str, Iterable[int]], subtopologies: Mapping[str, ConfiguredSubtopology], image: Image
) -> list[TopicPartition]:
    served = []
    for subtopology_id, partitions in tasks.items():
        subtopology = subtopologies.get(subtopology_id)
        if subtopology is None:
            continue
        numbers = sorted(partitions)
        for name in sorted({*subtopology.source_topics, *subtopology.repartition_sources}):
            topic = image.topic(name)
            if topic is not None:
                # A topic with fewer partitions than its subtopology belongs to the first tasks only.
                has_fewer = len(topic.partitions) < len(numbers)
                partition_numbers = numbers[: len(topic.partitions)] if has_fewer else numbers
                served.append(TopicPartition(topic=name, partitions=partition_numbers))
    return served
