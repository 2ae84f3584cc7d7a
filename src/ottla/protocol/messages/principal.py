"""The principal of a forwarded request, as an Envelope carries it."""

from ottla.protocol.wire.declare import since, stored


@stored(versions="0", flexible="0+")
class DefaultPrincipal:
    """The serialized principal of a client."""

    type: str = since("0+", default="")
    name: str = since("0+", default="")
    token_authenticated: bool = since("0+", default=False)
