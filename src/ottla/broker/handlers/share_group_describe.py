"""ShareGroupDescribe (key 77): share groups, their members and what these read (KIP-932)."""

from __future__ import annotations

from ottla.broker.authorization.group_guards import guard_share_group_describe
from ottla.broker.handlers.group_descriptions import Describe, describes_groups
from ottla.broker.handlers.share_group_heartbeat import check_enabled
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call
from ottla.broker.requests.group_context import context_of
from ottla.coordinators.groups.share.describing import describe_group
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.share_group_describe import DescribedGroup


@describes_groups(ApiKey.SHARE_GROUP_DESCRIBE, DescribedGroup, guard=guard_share_group_describe)
def share_group_describe(call: Call[BrokerNode]) -> Describe:
    """Describe share groups."""
    check_enabled(call)
    context = context_of(call)
    return lambda state, group_id: describe_group(state, group_id, context)
