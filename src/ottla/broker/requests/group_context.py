"""The context of a call in which group coordinators decide."""

from __future__ import annotations

from collections.abc import Collection

from ottla.broker.authorization.access_checks import filter_allowed
from ottla.broker.authorization.actions import Operation, ResourceType, Unanswered
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call
from ottla.coordinators.groups.context import Context


def context_of(call: Call[BrokerNode]) -> Context:
    """Return the context of a call: its client, and the current state of the broker."""
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
    """Finds out which topics a client may describe. A group asks this long after the request was answered."""

    def __init__(self, call: Call[BrokerNode]) -> None:
        self._call = call
        self._is_asking = False

    def __call__(self, names: Collection[str]) -> Collection[str] | None:
        """Return the topics that the client may describe; None while the authorizer has not answered yet."""
        if self._is_asking:
            return None
        try:
            return filter_allowed(self._call, Operation.DESCRIBE, ResourceType.TOPIC, names, log_if_denied=False)
        except Unanswered as question:
            self._is_asking = True
            question.then(self._call, self._done, refuse=False)
            return None

    def _done(self) -> None:
        self._is_asking = False
