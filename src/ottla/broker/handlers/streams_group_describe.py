"""StreamsGroupDescribe (key 89): streams groups with their topologies and members, and what these run (KIP-1071)."""

from __future__ import annotations

from ottla.broker.authorization.streams_guards import guard_streams_group_describe
from ottla.broker.handlers.group_descriptions import Describe, describes_groups
from ottla.broker.handlers.streams_group_heartbeat import check_enabled
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call
from ottla.coordinators.groups.streams.describing import describe_group
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.streams_group_describe import DescribedGroup


@describes_groups(ApiKey.STREAMS_GROUP_DESCRIBE, DescribedGroup, guard=guard_streams_group_describe)
def streams_group_describe(call: Call[BrokerNode]) -> Describe:
    """Describe streams groups."""
    check_enabled(call)
    return describe_group
