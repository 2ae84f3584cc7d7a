"""Who a forwarded request came from, as an Envelope carries it."""

from ottla.protocol.wire.declare import since, stored


@stored(versions="0", flexible="0+")
class DefaultPrincipal:
    """The principal of a client, as it travels in an Envelope."""

    type: str = since("0+", default="")
    name: str = since("0+", default="")
    token_authenticated: bool = since("0+", default=False)
