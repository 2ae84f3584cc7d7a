"""What the handlers of a controller's listener act on. The server puts it together; handlers never reach beyond it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.broker.authorization.actions import Authorizer
from ottla.broker.requests.call import Call, Client, Exchange
from ottla.metadata.image.image import Image
from ottla.protocol.messages.apis import Api


@dataclass(slots=True, kw_only=True)
class ControllerNode:
    """A controller's services."""

    node_id: int
    cluster_id: str
    current_image: Callable[[], Image]
    given: Mapping[str, str]
    """The node's configuration file."""
    supported_features: Mapping[str, tuple[int, int]]
    kraft_version: Callable[[], int]
    leader_id: Callable[[], int]
    """The active controller; -1 while there is none."""
    authorizer: Authorizer | None = None
    """Decides what clients and other nodes may do; without one they may do everything."""
    served: Sequence[Api] = ()
    """The APIs that clients are told of."""
    unstable_versions: bool = False
    levels_changed: Callable[[], None] = lambda: None
    """Called when loggers were given other levels, for those who do more than log."""
    controller_versions: Callable[[], Mapping[int, tuple[int, int]] | None] = lambda: None
    """A controller hands nothing on: what it serves, it serves itself."""
    decide: Callable[[Call[ControllerNode], Any], Awaitable[Any]]
    """Lets the controller of this node decide on a request, and returns its response; raises NotController if it is not
    the active one."""
    ask_quorum: Callable[[Call[ControllerNode], Any], None]
    """Hands a request to consensus, which answers the call."""
    handle: Callable[[Exchange, Client], None] | None = None
    """The way of every request, for those that come within another."""

    @property
    def image(self) -> Image:
        """The cluster's metadata as this node knows them."""
        return self.current_image()
