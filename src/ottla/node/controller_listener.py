"""The APIs of a node's controller listeners."""

from collections.abc import Callable

from ottla.broker.authorization.actions import Authorizer
from ottla.broker.handlers.registry import CONTROLLER_ENDPOINTS, advertised_apis
from ottla.broker.requests.controller_node import ControllerNode
from ottla.broker.requests.dispatch import Dispatch, Route
from ottla.config.node_settings import NodeSettings
from ottla.metadata.image.image import Image
from ottla.node.controller_access import ControllerAccess
from ottla.protocol.features import supported_features
from ottla.protocol.messages.apis import Listeners
from ottla.replication.runtime import Spawn


def controller_dispatch(
    settings: NodeSettings,
    cluster_id: str,
    current_image: Callable[[], Image],
    access: ControllerAccess,
    authorizer: Authorizer | None,
    *,
    spawn: Spawn,
    after: Callable[[], None],
    watch: Callable[[Route], None],
    levels_changed: Callable[[], None],
) -> Dispatch[ControllerNode]:
    """Return the dispatcher of the controller listeners."""
    node = ControllerNode(
        node_id=settings.node_id,
        cluster_id=cluster_id,
        current_image=current_image,
        given=settings.given,
        # Kafka's controllers use the flag for unstable APIs here, its brokers the one for unstable features.
        supported_features=supported_features(unstable=settings.flag("unstable.api.versions.enable")),
        kraft_version=access.kraft_version,
        leader_id=access.leader_id,
        advertised=advertised_apis(CONTROLLER_ENDPOINTS),
        decide=access.decide,
        ask_quorum=access.ask_quorum,
        authorizer=authorizer,
        levels_changed=levels_changed,
        unstable_versions=settings.flag("unstable.api.versions.enable"),
    )
    dispatch = Dispatch(
        node,
        CONTROLLER_ENDPOINTS,
        Listeners.CONTROLLER,
        spawn=spawn,
        after=after,
        watch=watch,
        has_guards=authorizer is not None,
        unstable=node.unstable_versions,
    )
    node.handle = dispatch.handle
    return dispatch
