"""DescribeCluster (key 60): the nodes of the cluster, and the client's authorized operations on it (KIP-700).

v1 requests brokers or controllers, on the listeners of that kind (KIP-919) · v2 fenced brokers.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.authorization.actions import Operation
from ottla.broker.authorization.authorized_operations import NOT_REQUESTED, cluster_operations
from ottla.broker.authorization.guards import of_cluster
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call
from ottla.broker.requests.controller_node import ControllerNode
from ottla.broker.requests.endpoint import endpoint
from ottla.protocol.errors import InvalidRequest, MismatchedEndpointType, UnsupportedEndpointType, UnsupportedVersion
from ottla.protocol.messages.apis import CONTROLLER, ApiKey
from ottla.protocol.messages.rpc.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.protocol.metadata_versions import CONTROLLER_REGISTRATION

BROKERS: Final = 1
CONTROLLERS: Final = 2


@endpoint(ApiKey.DESCRIBE_CLUSTER)
def describe_cluster(call: Call[BrokerNode], request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Describe the brokers that the client's listener reaches."""
    image, listener = call.node.image, call.client.listener
    if request.endpoint_type != BROKERS:
        raise _wrong_type(request.endpoint_type, call.version)
    registered = sorted(image.brokers.values(), key=lambda broker: broker.id)
    brokers = [
        DescribeClusterBroker(
            broker_id=broker.id, host=address.host, port=address.port, rack=broker.rack, is_fenced=broker.fenced
        )
        for broker in (registered if request.include_fenced_brokers else image.alive_brokers)
        if (address := broker.endpoints.get(listener)) is not None
    ]
    # Clients do not connect to the controller: any live broker forwards their requests to it.
    alive = [broker.broker_id for broker in brokers if not broker.is_fenced]
    return DescribeClusterResponse(
        cluster_id=call.node.cluster_id,
        controller_id=call.node.random.choice(alive) if alive else -1,
        brokers=brokers,
        cluster_authorized_operations=(
            cluster_operations(call) if request.include_cluster_authorized_operations else NOT_REQUESTED
        ),
    )


@endpoint(ApiKey.DESCRIBE_CLUSTER, on=CONTROLLER, guard=of_cluster(Operation.ALTER))
def describe_controllers(call: Call[ControllerNode], request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Describe the controllers that the client's listener reaches."""
    image, listener = call.node.image, call.client.listener
    if image.features.metadata_version < CONTROLLER_REGISTRATION:
        raise UnsupportedVersion(
            "Direct-to-controller communication is not supported with the current MetadataVersion."
        )
    if request.endpoint_type == BROKERS:
        why = "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER"
        raise InvalidRequest(why) if call.version == 0 else MismatchedEndpointType(why)
    if request.endpoint_type != CONTROLLERS:
        raise UnsupportedEndpointType(f"Unsupported endpoint type {request.endpoint_type}")
    return DescribeClusterResponse(
        endpoint_type=CONTROLLERS,
        cluster_id=call.node.cluster_id,
        controller_id=call.node.leader_id(),
        brokers=[
            DescribeClusterBroker(broker_id=number, host=address.host, port=address.port)
            for number, controller in sorted(image.controllers.items())
            if (address := controller.endpoints.get(listener)) is not None
        ],
        cluster_authorized_operations=(
            cluster_operations(call) if request.include_cluster_authorized_operations else NOT_REQUESTED
        ),
    )


def _wrong_type(requested: int, version: int) -> InvalidRequest | MismatchedEndpointType | UnsupportedEndpointType:
    if version == 0:
        return InvalidRequest(f"v0 has no endpoint type {requested}")
    if requested == CONTROLLERS:
        return MismatchedEndpointType(
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        )
    return UnsupportedEndpointType(f"Unsupported endpoint type {requested}")
