"""Routes each request to the handler of the listener that it arrived on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.broker.network.connection import Connection
from ottla.broker.network.request import Request
from ottla.broker.requests.call import Client

Handle = Callable[[Any, Client], None]
"""Handles a request of a client."""


class RequestRouter:
    """The handlers of a node's listeners, by the listener's name."""

    def __init__(self, client_of: Callable[[Connection], Client]) -> None:
        self._client_of = client_of
        """Returns the client of a new connection."""
        self._handlers: dict[str, Handle] = {}

    def add(self, listener: str, handle: Handle) -> None:
        """Route the requests of a listener to a handler."""
        self._handlers[listener] = handle

    def route(self, request: Request) -> None:
        """Handle a request. The connection's first request creates its client."""
        connection = request.connection
        client = connection.session
        if not isinstance(client, Client):
            client = connection.session = self._client_of(connection)
        self._handlers[client.listener](request, client)
