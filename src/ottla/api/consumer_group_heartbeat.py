"""ConsumerGroupHeartbeat (key 68): a member of a consumer group comes, stays or goes, and gets partitions (KIP-848).

v1 subscriptions by regular expression; the member makes its own id (KIP-1082).
"""

from __future__ import annotations

from typing import Final

from ottla.api.call import Call, Later
from ottla.api.coordinated import CallTicket, coordinated
from ottla.api.endpoint import endpoint
from ottla.api.group_context import context_of
from ottla.api.node import BrokerNode
from ottla.errors import UnsupportedVersion
from ottla.groups.consumer.checking import check_heartbeat
from ottla.groups.consumer.heartbeat import heartbeat
from ottla.image.versions import GROUP_VERSION
from ottla.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

_FIRST_WITH_CONSUMER_GROUPS: Final = 1


def check_enabled(call: Call[BrokerNode]) -> None:
    """Raise unless there are consumer groups: by the cluster's features, and by this broker's settings."""
    is_known = call.node.image.features.level(GROUP_VERSION) >= _FIRST_WITH_CONSUMER_GROUPS
    if not is_known or "consumer" not in call.node.setting("group.coordinator.rebalance.protocols"):
        raise UnsupportedVersion("The version of API is not supported.")


@endpoint(68)
def consumer_group_heartbeat(call: Call[BrokerNode], request: ConsumerGroupHeartbeatRequest) -> Later:
    """Let the group's coordinator decide."""
    check_enabled(call)
    context = context_of(call)
    check_heartbeat(request, context)
    shard = call.node.groups.of(request.group_id)
    return coordinated(shard, CallTicket(call, request), lambda state: heartbeat(state, request, context))
