"""Guards of what is asked of streams groups."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.broker.authorization.access_checks import GROUP_REFUSED, TOPIC_REFUSED, allowed, require_group, split
from ottla.broker.authorization.actions import Kind, Operation
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call
from ottla.coordinators.groups.streams.checking import check_topic_names, topology_topics
from ottla.protocol.errors import TopicAuthorizationFailed
from ottla.protocol.messages.rpc.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from ottla.protocol.messages.rpc.streams_group_heartbeat import StreamsGroupHeartbeatRequest


def guard_streams_group_heartbeat(call: Call[BrokerNode], request: StreamsGroupHeartbeatRequest) -> None:
    """READ on the group, DESCRIBE on every topic of the topology; but names that no topic can have are told first."""
    require_group(call, Operation.READ, request.group_id)
    if request.topology is None:
        return
    check_topic_names(request.topology)
    names = set(topology_topics(request.topology))
    if len(allowed(call, Operation.DESCRIBE, Kind.TOPIC, names)) < len(names):
        raise TopicAuthorizationFailed("Topic authorization failed.")


def guard_streams_group_describe(call: Call[BrokerNode], request: StreamsGroupDescribeRequest) -> None:
    """DESCRIBE on each group; a group is not told of that has topics which the client may not see."""
    request.group_ids, bad = split(call, Operation.DESCRIBE, Kind.GROUP, request.group_ids, str)
    refused = [DescribedGroup(group_id=each, error_code=GROUP_REFUSED) for each in bad]

    def amend(response: StreamsGroupDescribeResponse) -> StreamsGroupDescribeResponse:
        for number, group in enumerate(response.groups):
            names = set(_topics_of(group))
            if len(allowed(call, Operation.DESCRIBE, Kind.TOPIC, names)) < len(names):
                response.groups[number] = DescribedGroup(
                    group_id=group.group_id,
                    error_code=TOPIC_REFUSED,
                    error_message="The described group uses topics that the client is not authorized to describe.",
                )
        response.groups[:0] = refused
        return response

    call.amend = amend


def _topics_of(group: DescribedGroup) -> Iterator[str]:
    for each in (group.topology.subtopologies or ()) if group.topology is not None else ():
        yield from each.source_topics
        yield from each.repartition_sink_topics
        yield from (topic.name for topic in each.repartition_source_topics)
        yield from (topic.name for topic in each.state_changelog_topics)
