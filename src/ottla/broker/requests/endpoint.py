"""Endpoints: how a handler declares which API it serves, and the registry of all endpoints of a node.

    @endpoint(ApiKey.HEARTBEAT, guard=of_group(Operation.READ))
    def heartbeat(call, request): ...

`on` names the kinds of listener that serve the API with this handler; the default is a broker's.

`failed` builds the response to a request that fails as a whole. By default, that response carries the error's code at
its top. An API whose response has no such field, or that has one error for each item, must give its own. If `failed`
returns None, no response is expected, and the connection ends.

`guard` runs before the handler on nodes that have an authorizer.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from ottla.broker.requests.call import Call
from ottla.protocol.errors import ApiError
from ottla.protocol.messages.apis import BY_KEY, Api, ApiKey, Listeners
from ottla.protocol.wire.declare import schema_of

Handler = Callable[[Call[Any], Any], Any]
H = TypeVar("H", bound=Handler)
Failed = Callable[[Any, int, ApiError], Any]
"""Builds a response from the request, its version and the error."""
Guard = Callable[[Call[Any], Any], None]


class Endpoint(NamedTuple):
    """An API as one kind of listener serves it."""

    api: Api
    handler: Handler
    failed: Failed
    guard: Guard | None = None


_REGISTRY: Final[Mapping[Listeners, dict[ApiKey, Endpoint]]] = {Listeners.BROKER: {}, Listeners.CONTROLLER: {}}


def endpoint(
    key: ApiKey, *, on: Listeners = Listeners.BROKER, failed: Failed | None = None, guard: Guard | None = None
) -> Callable[[H], H]:
    """Register a function as the handler of an API. One function may handle several APIs."""

    def register(handler: H) -> H:
        declared = endpoint_of(key, handler, failed=failed, guard=guard)
        assert declared.api.listeners & on == on, f"{declared.api.name} is not an API of {on}"
        for listener in on:
            assert key not in _REGISTRY[listener], f"{declared.api.name} has two handlers on {listener}"
            _REGISTRY[listener][key] = declared
        return handler

    return register


def endpoint_of(key: ApiKey, handler: Handler, *, failed: Failed | None = None, guard: Guard | None = None) -> Endpoint:
    """Return an endpoint without registering it."""
    api = BY_KEY[key]
    return Endpoint(api, handler, failed or _failed_as_a_whole(api), guard)


def registered(listener: Listeners) -> Mapping[ApiKey, Endpoint]:
    """Return the endpoints of one kind of listener: all of them once `broker/handlers/registry.py` is imported."""
    return _REGISTRY[listener]


def _failed_as_a_whole(api: Api) -> Failed:
    def failed(request: Any, version: int, error: ApiError) -> Any:
        fields = schema_of(api.response).fields
        assert "error_code" in fields, f"the response of {api.name} has no error code: its endpoint must give `failed`"
        if "error_message" in fields:
            return api.response(error_code=error.code, error_message=error.message)
        return api.response(error_code=error.code)

    return failed
