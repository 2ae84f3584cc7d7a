"""What decisions about groups are told of a call."""

from __future__ import annotations

from ottla.access.actions import Kind, Operation
from ottla.api.call import Call
from ottla.api.guarding import allowed
from ottla.api.node import BrokerNode
from ottla.groups.context import Context


def context_of(call: Call[BrokerNode]) -> Context:
    """The surroundings of a request: who asks, and the broker as it is now."""
    node = call.node
    return Context(
        now_ms=node.now_ms(),
        image=node.image,
        settings=node.setting,
        new_id=node.new_member_id,
        client_id=call.client_id or "",
        client_host=f"/{call.client.address}",
        version=call.version,
        assignors=node.assignors,
        visible=lambda names: allowed(call, Operation.DESCRIBE, Kind.TOPIC, names),
    )
