"""The endpoints of a controller's listener: what nodes say to each other, and what is decided for brokers.

Votes, fetches and the rest of Raft go to consensus, which answers on its own. All that changes metadata is decided by
the active controller, be it sent by a broker for itself, by a broker for a client, or by a client that was given the
controllers' addresses (KIP-919).
"""

from __future__ import annotations

from typing import Any, Final

from ottla.broker.authorization.authorized_operations import NOT_ASKED, cluster_operations
from ottla.broker.handlers import (
    acls,
    api_versions,
    broker_loggers,
    delegation_tokens,
    describe_configs,
    describe_user_scram_credentials,
    sasl,
)
from ottla.broker.handlers.alter_configs import incremental_failed, legacy_failed
from ottla.broker.handlers.describe_cluster import BROKERS, CONTROLLERS
from ottla.broker.requests import envelope
from ottla.broker.requests.call import LATER, Call
from ottla.broker.requests.controller_node import ControllerNode
from ottla.broker.requests.endpoint import Endpoint, Failed, endpoint
from ottla.broker.requests.envelope import Enclosed
from ottla.broker.requests.forwarded import FAILURES
from ottla.metadata.image.values import ResourceType
from ottla.protocol.errors import (
    ApiError,
    InvalidRequest,
    MismatchedEndpointType,
    NotController,
    UnknownServerError,
    UnsupportedEndpointType,
    UnsupportedVersion,
)
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc import incremental_alter_configs as configs
from ottla.protocol.messages.rpc.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.protocol.metadata_versions import CONTROLLER_REGISTRATION

RAFT: Final = (
    ApiKey.FETCH,
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UPDATE_RAFT_VOTER,
)
"""Fetch, Vote, BeginQuorumEpoch, EndQuorumEpoch, DescribeQuorum, FetchSnapshot, and changes of the voters."""
DECIDED: Final[dict[ApiKey, Failed | None]] = {
    **{key: failed for key, failed in FAILURES.items() if key not in RAFT},
    ApiKey.ALTER_CONFIGS: legacy_failed,
    ApiKey.ALTER_PARTITION: None,
    ApiKey.BROKER_REGISTRATION: None,
    ApiKey.BROKER_HEARTBEAT: None,
    ApiKey.ALLOCATE_PRODUCER_IDS: None,
    ApiKey.CONTROLLER_REGISTRATION: None,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: None,
}


async def decide(call: Call[ControllerNode], request: Any) -> Any:
    """The active controller's answer. That it is elsewhere, the broker is told and not its client."""
    try:
        return await call.node.decide(call, request)
    except NotController as error:
        if isinstance(call.exchange, Enclosed):
            call.exchange.fail(error)
            return LATER
        raise


def ask_quorum(call: Call[ControllerNode], request: Any) -> Any:
    """Consensus answers when it can.

    What a broker hands on is for the leader. A broker that sent it elsewhere is told so, and looks for the leader. Were
    its client told instead, a broker of Kafka would send the next one here again.
    """
    if isinstance(call.exchange, Enclosed) and call.node.leader_id() != call.node.node_id:
        call.exchange.fail(NotController())
    else:
        call.node.ask_quorum(call, request)
    return LATER


@endpoint(ApiKey.INCREMENTAL_ALTER_CONFIGS, failed=incremental_failed)
async def incremental_alter_configs(call: Call[ControllerNode], request: configs.IncrementalAlterConfigsRequest) -> Any:
    """Levels of loggers are changed here; all else is decided by the active controller."""
    known = [each for each in request.resources if each.resource_type in _KINDS]
    loggers = [each for each in known if each.resource_type == ResourceType.BROKER_LOGGER]
    rest = [each for each in known if each.resource_type != ResourceType.BROKER_LOGGER]
    strange = [each for each in request.resources if each.resource_type not in _KINDS]
    told = [_told(each, UnsupportedVersion(f"Unknown resource type {each.resource_type}.")) for each in strange]
    if rest:
        asked = configs.IncrementalAlterConfigsRequest(resources=rest, validate_only=request.validate_only)
        decided = await decide(call, asked)
        if decided is LATER:
            return LATER
        told += decided.responses
    for each in loggers:
        try:
            broker_loggers.alter_levels(
                call.node.node_id, each.resource_name, each.configs, validate_only=request.validate_only
            )
            call.node.levels_changed()
            told.append(_told(each, None))
        except ApiError as error:  # one bad resource spoils only its own answer
            told.append(_told(each, error))
    return configs.IncrementalAlterConfigsResponse(responses=told)


_KINDS: Final = frozenset(ResourceType) - {ResourceType.UNKNOWN}


def _told(resource: configs.AlterConfigsResource, error: ApiError | None) -> configs.AlterConfigsResourceResponse:
    return configs.AlterConfigsResourceResponse(
        error_code=0 if error is None else error.code,
        error_message=None if error is None else error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


@endpoint(ApiKey.DESCRIBE_CLUSTER)
def describe_cluster(call: Call[ControllerNode], request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Tell the controllers that the client's listener reaches."""
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
            cluster_operations(call) if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _may_have_tokens(call: Call[ControllerNode]) -> bool:
    """A broker has seen to it that its client may; who comes here without one must have proved who it is."""
    return not call.client.has_token if isinstance(call.exchange, Enclosed) else delegation_tokens.has_own_proof(call)


@endpoint(ApiKey.DESCRIBE_DELEGATION_TOKEN)
def describe_delegation_token(call: Call[ControllerNode], request: Any) -> Any:
    """Brokers tell of tokens. Kafka's controllers say that they would, and then have nothing that does."""
    raise UnknownServerError


def _of_active(inner: Endpoint) -> Endpoint:
    """What needs the active controller: that it is elsewhere, the broker is told and not its client."""

    @endpoint(inner.api.key, failed=inner.failed)
    async def handle(call: Call[ControllerNode], request: Any) -> Any:
        try:
            return await inner.handler(call, request)
        except NotController as error:
            if isinstance(call.exchange, Enclosed):
                call.exchange.fail(error)
                return LATER
            raise

    return handle


ENDPOINTS: tuple[Endpoint, ...] = (
    api_versions.api_versions,
    *sasl.ENDPOINTS,
    envelope.envelope,
    describe_cluster,
    describe_configs.describe_configs,
    describe_user_scram_credentials.describe_user_scram_credentials,
    incremental_alter_configs,
    acls.describe_acls,
    _of_active(acls.create_acls),
    _of_active(acls.delete_acls),
    *delegation_tokens.Deciding(decide, _may_have_tokens).endpoints,
    describe_delegation_token,
    *(endpoint(key, failed=failed)(decide) for key, failed in DECIDED.items()),
    *(endpoint(key)(ask_quorum) for key in RAFT),
)
