"""Requests that a coordinator of this broker decides on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ottla.broker.requests.call import LATER, Call, Later
from ottla.coordinators.runtime.shard import Shard
from ottla.protocol.errors import ApiError
from ottla.storage.state_machine.decision import Decision

S = TypeVar("S")


class CallTicket:
    """A call as its coordinator sees it: the coordinator answers it, or fails it with an error."""

    __slots__ = ("call", "request")

    def __init__(self, call: Call[Any], request: Any) -> None:
        self.call = call
        self.request = request

    def answer(self, response: Any, /) -> None:
        self.call.answer(response)

    def fail(self, error: ApiError, /) -> None:
        self.call.answer(self.call.route.endpoint.failed(self.request, self.call.version, error))


def submit_to_coordinator(shard: Shard[S], ticket: CallTicket, decide: Callable[[S], Decision[Any]]) -> Later:
    """Let a coordinator decide on a call. The call is answered when the decision is committed."""
    shard.submit(ticket.call.route.api.name, decide, ticket)
    return LATER
