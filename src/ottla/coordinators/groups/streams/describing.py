"""StreamsGroupDescribe: a group's epochs, topology and members, with their current and target assignments."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.coordinators.groups.state import GroupsState, find_group
from ottla.coordinators.groups.streams.configuring import ConfiguredTopology, InternalTopic
from ottla.coordinators.groups.streams.group import StreamsGroup
from ottla.coordinators.groups.streams.member import StreamsGroupMember
from ottla.coordinators.groups.streams.tasks import TaskEpochs, TaskIds
from ottla.coordinators.groups.streams.topology import Topology as GroupTopology
from ottla.protocol.errors import UnknownServerError
from ottla.protocol.java.hash_order import versioned_order
from ottla.protocol.messages.records import streams_group_records as stored
from ottla.protocol.messages.rpc.streams_group_describe import (
    Assignment,
    DescribedGroup,
    Endpoint,
    KeyValue,
    Member,
    Subtopology,
    TopicInfo,
    Topology,
)
from ottla.protocol.messages.rpc.streams_group_describe import TaskIds as DescribedTaskIds


def describe_group(state: GroupsState, group_id: str) -> DescribedGroup:
    """Describe a streams group; raise GroupIdNotFound if it does not exist."""
    group = find_group(state, group_id, StreamsGroup)
    if group.topology is None:
        raise UnknownServerError(f"streams group {group_id} has no topology")
    configured = group.configured
    is_ready = configured is not None and configured.is_ready
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        topology=_configured_topology(configured)
        if configured is not None and is_ready
        else _original_topology(group.topology),
        members=[_member(group, group.members[member_id]) for member_id in versioned_order(group.members)],
    )


def _member(group: StreamsGroup, member: StreamsGroupMember) -> Member:
    target, endpoint = group.target_of(member.id), member.endpoint
    return Member(
        member_id=member.id,
        member_epoch=member.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[KeyValue(key=key, value=value) for key, value in member.tags.items()],
        assignment=_assignment(member.assigned.active, member.assigned.standby, member.assigned.warmup),
        target_assignment=_assignment(target.active, target.standby, target.warmup),
    )


def _assignment(active: TaskIds | TaskEpochs, standby: TaskIds, warmup: TaskIds) -> Assignment:
    return Assignment(active_tasks=_tasks(active), standby_tasks=_tasks(standby), warmup_tasks=_tasks(warmup))


def _tasks(tasks: TaskIds | TaskEpochs) -> list[DescribedTaskIds]:
    return [
        DescribedTaskIds(subtopology_id=subtopology_id, partitions=sorted(tasks[subtopology_id]))
        for subtopology_id in sorted(tasks)
    ]


def _configured_topology(configured: ConfiguredTopology) -> Topology:
    """Describe a topology with the partition counts of internal topics."""
    assert configured.subtopologies is not None, "a topology that is ready has subtopologies"
    return Topology(
        epoch=configured.topology_epoch,
        subtopologies=[
            Subtopology(
                subtopology_id=subtopology_id,
                source_topics=sorted(subtopology.source_topics),
                repartition_sink_topics=sorted(subtopology.repartition_sinks),
                state_changelog_topics=_topics(subtopology.changelogs),
                repartition_source_topics=_topics(subtopology.repartition_sources),
            )
            for subtopology_id, subtopology in configured.subtopologies.items()
        ],
    )


def _topics(topics: Mapping[str, InternalTopic]) -> list[TopicInfo]:
    return [
        TopicInfo(
            name=name,
            partitions=topics[name].partitions,
            replication_factor=topics[name].replication_factor,
            topic_configs=[KeyValue(key=key, value=value) for key, value in topics[name].configs.items()],
        )
        for name in sorted(topics)
    ]


def _original_topology(topology: GroupTopology) -> Topology:
    """Describe a topology as the members sent it."""
    return Topology(
        epoch=topology.epoch,
        subtopologies=[
            Subtopology(
                subtopology_id=subtopology_id,
                source_topics=sorted(subtopology.source_topics),
                repartition_sink_topics=sorted(subtopology.repartition_sink_topics),
                state_changelog_topics=_original_topics(subtopology.state_changelog_topics),
                repartition_source_topics=_original_topics(subtopology.repartition_source_topics),
            )
            for subtopology_id, subtopology in sorted(topology.subtopologies.items())
        ],
    )


def _original_topics(topics: list[stored.TopicInfo]) -> list[TopicInfo]:
    return [
        TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[KeyValue(key=config.key, value=config.value) for config in topic.topic_configs],
        )
        for topic in sorted(topics, key=lambda topic: topic.name)
    ]
