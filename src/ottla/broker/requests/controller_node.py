"""The services of a controller that the handlers of its listeners use. The node wires them."""

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
    """Returns the id of the active controller; -1 while no controller is active."""
    authorizer: Authorizer | None = None
    """Decides what clients and other nodes may do; None if they may do everything."""
    advertised: Sequence[Api] = ()
    """The APIs that ApiVersions advertises."""
    unstable_versions: bool = False
    levels_changed: Callable[[], None] = lambda: None
    """Called when log levels changed, for services that depend on them."""
    controller_versions: Callable[[], Mapping[int, tuple[int, int]] | None] = lambda: None
    """Returns None: a controller forwards nothing, so that its own versions count."""
    decide: Callable[[Call[ControllerNode], Any], Awaitable[Any]]
    """Lets the controller of this node decide on a request, and returns its response; raises NotController if it is not
    the active one."""
    ask_quorum: Callable[[Call[ControllerNode], Any], None]
    """Passes a request to the quorum, which answers the call."""
    handle: Callable[[Exchange, Client], None] | None = None
    """Handles a request that arrived in an envelope."""

    @property
    def image(self) -> Image:
        """The metadata of the cluster, as far as this node has read it."""
        return self.current_image()
