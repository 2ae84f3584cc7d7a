"""Validation of StreamsGroupHeartbeat, before the group is looked up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ottla.coordinators.groups.request_checks import check_not_blank
from ottla.coordinators.groups.streams.member import JOINING, LEAVING_STATIC
from ottla.metadata.controller.topic_names import INTERNAL_TOPICS, check_topic_name
from ottla.protocol.errors import InvalidRequest, InvalidTopic, StreamsInvalidTopology
from ottla.protocol.messages.rpc.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Topology

_ALL_OR_NONE: Final = "If one task-type is non-null, all must be non-null."


def topology_topics(topology: Topology) -> Iterator[str]:
    """Yield all topics of a topology, possibly more than once."""
    for subtopology in topology.subtopologies:
        yield from subtopology.source_topics
        yield from subtopology.repartition_sink_topics
        yield from (topic.name for topic in subtopology.repartition_source_topics)
        yield from (topic.name for topic in subtopology.state_changelog_topics)


def check_topic_names(topology: Topology) -> None:
    """Raise StreamsInvalidTopology if a topology names topics that it may not use, or that there cannot be."""
    names = list(dict.fromkeys(topology_topics(topology)))
    internal = [name for name in names if name in INTERNAL_TOPICS]
    if internal:
        raise StreamsInvalidTopology(
            f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is prohibited."
        )
    invalid = [name for name in names if not _is_valid(name)]
    if invalid:
        raise StreamsInvalidTopology(f"Topic names {','.join(invalid)} are not valid topic names.")


def _is_valid(name: str) -> bool:
    try:
        check_topic_name(name)
    except InvalidTopic:
        return False
    return True


def check_heartbeat(request: StreamsGroupHeartbeatRequest) -> None:
    """Raise InvalidRequest or StreamsInvalidTopology, with Kafka's messages."""
    _check_supported(request)
    check_not_blank(request.member_id, "MemberId")
    check_not_blank(request.group_id, "GroupId")
    check_not_blank(request.rack_id, "RackId")
    epoch = request.member_epoch
    if epoch == JOINING:
        _check_joining(request)
    elif epoch == LEAVING_STATIC:
        raise InvalidRequest("InstanceId can't be null.")
    elif epoch < LEAVING_STATIC:
        raise InvalidRequest(f"MemberEpoch is {epoch}, but must be greater than or equal to -2.")
    tasks = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
    if any(task_ids is not None for task_ids in tasks) and any(task_ids is None for task_ids in tasks):
        raise InvalidRequest(_ALL_OR_NONE)
    if epoch != JOINING and request.topology is not None:
        raise InvalidRequest("Topology can only be provided when (re-)joining.")


def _check_supported(request: StreamsGroupHeartbeatRequest) -> None:
    """Raise InvalidRequest for what Kafka's coordinator does not support yet."""
    if request.instance_id is not None:
        raise InvalidRequest("Static membership is not yet supported.")
    if request.task_offsets is not None:
        raise InvalidRequest("TaskOffsets are not supported yet.")
    if request.task_end_offsets is not None:
        raise InvalidRequest("TaskEndOffsets are not supported yet.")
    if request.warmup_tasks:
        raise InvalidRequest("WarmupTasks are not supported yet.")
    if request.topology is not None and any(
        subtopology.source_topic_regex for subtopology in request.topology.subtopologies
    ):
        raise InvalidRequest("Regular expressions for source topics are not supported yet.")


def _check_joining(request: StreamsGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise InvalidRequest("RebalanceTimeoutMs must be provided in first request.")
    for tasks, word in (
        (request.active_tasks, "ActiveTasks"),
        (request.standby_tasks, "StandbyTasks"),
        (request.warmup_tasks, "WarmupTasks"),
    ):
        if tasks is None or tasks:
            raise InvalidRequest(f"{word} must be empty when (re-)joining.")
    if request.topology is None:
        raise InvalidRequest("Topology must be non-null when (re-)joining.")
    for subtopology in request.topology.subtopologies:
        for topic in subtopology.state_changelog_topics:
            if topic.partitions != 0:
                raise StreamsInvalidTopology(
                    f"Changelog topic {topic.name} must have an undefined partition count, but it is set to "
                    f"{topic.partitions}."
                )
