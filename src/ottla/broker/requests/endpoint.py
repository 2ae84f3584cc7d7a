"""How a handler is declared: for which API, and what is answered when all of a request fails.

    @endpoint(ApiKey.API_VERSIONS)
    def api_versions(call, request): ...

By default a failure is an answer with the error's code at its top. An API whose answers have no such place, or that
have one error for each item, says how its failure looks: `@endpoint(ApiKey.PRODUCE, failed=produce_failed)`. A failure
of None means that no answer is expected, and ends the connection.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.broker.requests.call import Call
from ottla.protocol.errors import ApiError
from ottla.protocol.messages.apis import BY_KEY, Api, ApiKey
from ottla.protocol.wire.declare import schema_of

Handler = Callable[[Call[Any], Any], Any]
Failed = Callable[[Any, int, ApiError], Any]
"""Takes the request, its version and the error; gives the response."""


class Endpoint(NamedTuple):
    """An API as a node serves it."""

    api: Api
    handler: Handler
    failed: Failed


def endpoint(key: ApiKey, *, failed: Failed | None = None) -> Callable[[Handler], Endpoint]:
    """Declare the handler of an API."""
    api = BY_KEY[key]

    def declare(handler: Handler) -> Endpoint:
        return Endpoint(api, handler, failed or _failed_as_a_whole(api))

    return declare


def _failed_as_a_whole(api: Api) -> Failed:
    def failed(request: Any, version: int, error: ApiError) -> Any:
        fields = schema_of(api.response).fields
        assert "error_code" in fields, f"{api.name} has no error of its own: its endpoint must say how it fails"
        if "error_message" in fields:
            return api.response(error_code=error.code, error_message=error.message)
        return api.response(error_code=error.code)

    return failed
