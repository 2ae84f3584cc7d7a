"""ConsumerGroupDescribe (key 69): consumer groups, and their members' current and target assignments (KIP-848).

v1 shows which members use the classic protocol (KIP-1099).
"""

from __future__ import annotations

from ottla.broker.authorization.group_guards import guard_consumer_group_describe
from ottla.broker.handlers.consumer_group_heartbeat import has_consumer_groups
from ottla.broker.handlers.group_descriptions import Describe, describes_groups
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call
from ottla.broker.requests.group_context import context_of
from ottla.coordinators.groups.consumer.describing import describe_group
from ottla.protocol.errors import UnsupportedVersion
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.consumer_group_describe import DescribedGroup


@describes_groups(ApiKey.CONSUMER_GROUP_DESCRIBE, DescribedGroup, guard=guard_consumer_group_describe)
def consumer_group_describe(call: Call[BrokerNode]) -> Describe:
    """Describe consumer groups."""
    if not has_consumer_groups(call.node):
        raise UnsupportedVersion
    context = context_of(call)
    return lambda state, group_id: describe_group(state, group_id, context)
