"""The headers of requests and responses."""

from ottla.protocol.wire.declare import since, stored
from ottla.protocol.wire.types import Int16, Int32


@stored(versions="1-2", flexible="2+")
class RequestHeader:
    """The header of a request: its API and version, its correlation id and the client id."""

    request_api_key: Int16 = since("1+", default=0)
    request_api_version: Int16 = since("1+", default=0)
    correlation_id: Int32 = since("1+", default=0)
    client_id: str | None = since("1+", default="", compact=False)


@stored(versions="0-1", flexible="1+")
class ResponseHeader:
    """The header of a response: the correlation id of its request."""

    correlation_id: Int32 = since("0+", default=0)
