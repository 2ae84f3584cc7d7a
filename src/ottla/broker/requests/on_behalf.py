"""Requests that a broker sends to the active controller on behalf of a client, to serve another of its requests."""

from functools import cache
from typing import Any

from ottla.broker.requests.call import Call
from ottla.broker.requests.dispatch import Route
from ottla.broker.requests.endpoint import registered
from ottla.protocol.messages.apis import BROKER, ApiKey


def call_on_behalf(call: Call[Any], key: ApiKey, version: int) -> Call[Any]:
    """Return a call in the name of the client of another call, with its client id and correlation id.

    The call has no response of its own for the client.
    """
    return Call(
        call.node,
        _route(key, version),
        version,
        call.correlation_id,
        call.client_id,
        call.client,
        call.exchange,
        _NoAnswer(),
    )


@cache
def _route(key: ApiKey, version: int) -> Route:
    return Route(registered(BROKER)[key], version)


class _NoAnswer:
    """Sends nothing to the client."""

    def finish(self, call: Call[Any], response: Any, error: Exception | None = None, /) -> None:
        raise AssertionError(f"{call.route.api.name} was sent on behalf of a client, which must not get its answer")

    def finish_failed(self, call: Call[Any], error: Exception, /) -> None:
        raise AssertionError(
            f"{call.route.api.name} was sent on behalf of a client, which must not get its error"
        ) from error
