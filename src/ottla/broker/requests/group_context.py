"""What decisions about groups are told of a call."""

from __future__ import annotations

from collections.abc import Collection

from ottla.broker.authorization.access_checks import allowed
from ottla.broker.authorization.actions import Kind, Operation, Unanswered
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call
from ottla.coordinators.groups.context import Context


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
        visible=_Visible(call),
    )


class _Visible:
    """The topics that a client may describe. A group looks for topics long after the request was answered."""

    def __init__(self, call: Call[BrokerNode]) -> None:
        self._call = call
        self._is_asking = False

    def __call__(self, names: Collection[str]) -> Collection[str] | None:
        """Those of some topics that the client may describe; None while the authorizer is asked about them."""
        if self._is_asking:
            return None
        try:
            return allowed(self._call, Operation.DESCRIBE, Kind.TOPIC, names, log_if_denied=False)
        except Unanswered as question:
            self._is_asking = True
            question.then(self._call, self._done, refuse=False)
            return None

    def _done(self) -> None:
        self._is_asking = False
