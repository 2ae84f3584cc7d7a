"""Guards of the APIs for streams groups."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.broker.authorization.access_checks import (
    GROUP_DENIED,
    TOPIC_DENIED,
    authorization_error,
    filter_allowed,
    require_group,
    split_allowed,
)
from ottla.broker.authorization.actions import Operation, ResourceType
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call
from ottla.coordinators.groups.streams.checking import check_topic_names, topology_topics
from ottla.protocol.messages.rpc.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from ottla.protocol.messages.rpc.streams_group_heartbeat import StreamsGroupHeartbeatRequest


def guard_streams_group_heartbeat(call: Call[BrokerNode], request: StreamsGroupHeartbeatRequest) -> None:
    """Require READ on the group, and DESCRIBE on every topic of the topology. Invalid topic names fail first."""
    require_group(call, Operation.READ, request.group_id)
    if request.topology is None:
        return
    check_topic_names(request.topology)
    names = set(topology_topics(request.topology))
    if len(filter_allowed(call, Operation.DESCRIBE, ResourceType.TOPIC, names)) < len(names):
        raise authorization_error(ResourceType.TOPIC)


def guard_streams_group_describe(call: Call[BrokerNode], request: StreamsGroupDescribeRequest) -> None:
    """Require DESCRIBE on each group, and on all its topics."""
    request.group_ids, denied_ids = split_allowed(call, Operation.DESCRIBE, ResourceType.GROUP, request.group_ids, str)
    denied = [DescribedGroup(group_id=group_id, error_code=GROUP_DENIED) for group_id in denied_ids]

    def amend(response: StreamsGroupDescribeResponse) -> StreamsGroupDescribeResponse:
        for index, group in enumerate(response.groups):
            names = set(_topics_of(group))
            if len(filter_allowed(call, Operation.DESCRIBE, ResourceType.TOPIC, names)) < len(names):
                response.groups[index] = DescribedGroup(
                    group_id=group.group_id,
                    error_code=TOPIC_DENIED,
                    error_message="The described group uses topics that the client is not authorized to describe.",
                )
        response.groups[:0] = denied
        return response

    call.amend = amend


def _topics_of(group: DescribedGroup) -> Iterator[str]:
    if group.topology is None:
        return
    for subtopology in group.topology.subtopologies or ():
        yield from subtopology.source_topics
        yield from subtopology.repartition_sink_topics
        yield from (topic.name for topic in subtopology.repartition_source_topics)
        yield from (topic.name for topic in subtopology.state_changelog_topics)
