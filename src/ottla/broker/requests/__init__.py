"""A request on its way to its handler and back: dispatch, calls, endpoints, authentication, throttling, forwarding."""
