"""The registry of the controller's decisions: which function decides on which request, and what it needs besides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final, NamedTuple

from ottla.metadata.controller.acls import create_acls, delete_acls
from ottla.metadata.controller.alter_partition import alter_partition
from ottla.metadata.controller.assign_replicas_to_dirs import assign_replicas_to_dirs
from ottla.metadata.controller.broker_heartbeat import process_broker_heartbeat
from ottla.metadata.controller.configs import alter_configs, incremental_alter_configs
from ottla.metadata.controller.create_partitions import create_partitions
from ottla.metadata.controller.create_topics import CreationContext, create_topics
from ottla.metadata.controller.decision import Charge, Decision
from ottla.metadata.controller.delegation_tokens import (
    create_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)
from ottla.metadata.controller.delete_topics import delete_topics
from ottla.metadata.controller.features import requested_kraft_version, update_features
from ottla.metadata.controller.heartbeats import Heartbeats
from ottla.metadata.controller.leader_elections import elect_leaders
from ottla.metadata.controller.partition_reassignments import (
    alter_partition_reassignments,
    list_partition_reassignments,
)
from ottla.metadata.controller.producer_ids import allocate_producer_ids
from ottla.metadata.controller.quotas import alter_client_quotas
from ottla.metadata.controller.registration import register_broker, register_controller, unregister_broker
from ottla.metadata.controller.scram import alter_scram_credentials
from ottla.metadata.controller.state_tracker import StateTracker
from ottla.metadata.controller.view import ControllerView
from ottla.metadata.runtime.quorum_driver import QuorumDriver
from ottla.protocol.errors import UnsupportedVersion
from ottla.protocol.messages.rpc.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.protocol.messages.rpc.alter_client_quotas import AlterClientQuotasRequest
from ottla.protocol.messages.rpc.alter_configs import AlterConfigsRequest
from ottla.protocol.messages.rpc.alter_partition import AlterPartitionRequest
from ottla.protocol.messages.rpc.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from ottla.protocol.messages.rpc.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from ottla.protocol.messages.rpc.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from ottla.protocol.messages.rpc.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.messages.rpc.broker_registration import BrokerRegistrationRequest
from ottla.protocol.messages.rpc.controller_registration import ControllerRegistrationRequest
from ottla.protocol.messages.rpc.create_acls import CreateAclsRequest
from ottla.protocol.messages.rpc.create_delegation_token import CreateDelegationTokenRequest
from ottla.protocol.messages.rpc.create_partitions import CreatePartitionsRequest
from ottla.protocol.messages.rpc.create_topics import CreateTopicsRequest
from ottla.protocol.messages.rpc.delete_acls import DeleteAclsRequest
from ottla.protocol.messages.rpc.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.rpc.elect_leaders import ElectLeadersRequest
from ottla.protocol.messages.rpc.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.protocol.messages.rpc.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.messages.rpc.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.protocol.messages.rpc.renew_delegation_token import RenewDelegationTokenRequest
from ottla.protocol.messages.rpc.unregister_broker import UnregisterBrokerRequest
from ottla.protocol.messages.rpc.update_features import UpdateFeaturesRequest
from ottla.protocol.wire.declare import schema_of
from ottla.storage.directories.node_files import show_id
from ottla.storage.directories.random_ids import random_id


class Requester(NamedTuple):
    """Who sent a request to the controller, and how it arrived."""

    principal: str
    is_from_broker: bool
    """Whether a broker has checked the request before, against its own settings and directories."""
    charge: Charge | None = None
    """Charges changes of topics to the client's quota; None if the client has no such quota."""
    unknown_hosts: frozenset[str] = frozenset()
    """The hosts in the request that have no address."""


class DecisionContext(NamedTuple):
    """What a decision may use besides the view of the cluster and the request."""

    quorum: QuorumDriver
    heartbeats: Heartbeats
    states: StateTracker
    random: Random
    now_ms: Callable[[], int]
    requester: Requester

    def new_id(self) -> bytes:
        return random_id(self.random.randbytes)

    def new_token_id(self) -> str:
        return show_id(self.new_id())


Decide = Callable[[ControllerView], Decision[Any]]
DecisionFunction = Callable[[ControllerView, Any, DecisionContext], Decision[Any]]


def decision_on(request: Any, context: DecisionContext) -> Decide:
    """Return what decides on a request; raise UnsupportedVersion if the controller does not decide on such requests."""
    decide = _DECISIONS.get(type(request))
    if decide is None:
        raise UnsupportedVersion(f"the controller does not decide on {api_name(request)}")
    return lambda view: decide(view, request, context)


def api_name(request: Any) -> str:
    """Return the name of a request's API, such as `CreateTopics`."""
    return schema_of(type(request)).name.removesuffix("Request")


def _create_topics(view: ControllerView, request: CreateTopicsRequest, context: DecisionContext) -> Decision[Any]:
    creation = CreationContext(random=context.random, new_id=context.new_id, charge=context.requester.charge)
    return create_topics(view, request, creation)


def _create_token(
    view: ControllerView, request: CreateDelegationTokenRequest, context: DecisionContext
) -> Decision[Any]:
    return create_delegation_token(
        view,
        request,
        principal=context.requester.principal,
        now_ms=context.now_ms(),
        new_token_id=context.new_token_id,
    )


def _update_features(view: ControllerView, request: UpdateFeaturesRequest, context: DecisionContext) -> Decision[Any]:
    consensus = context.quorum.consensus
    current = consensus.history.kraft_version
    voters = [key.id for key in consensus.voters.replicas]
    decision = update_features(view, request, kraft_version=current, voters=voters)
    requested = requested_kraft_version(request)
    if requested is not None and requested > current and not decision.reply.error_code:
        # The quorum writes its own version into the log, ahead of the records of this decision.
        context.quorum.upgrade_kraft_version(consensus.epoch, requested)
    return decision


def _register_broker(
    view: ControllerView, request: BrokerRegistrationRequest, context: DecisionContext
) -> Decision[Any]:
    return register_broker(
        view,
        context.heartbeats,
        request,
        now_ms=context.now_ms(),
        next_offset=context.quorum.log.end_offset,
        kraft_version=context.quorum.consensus.history.kraft_version,
    )


def _process_heartbeat(
    view: ControllerView, request: BrokerHeartbeatRequest, context: DecisionContext
) -> Decision[Any]:
    decision = process_broker_heartbeat(
        view, context.heartbeats, request, now_ms=context.now_ms(), next_offset=context.quorum.log.end_offset
    )
    if not decision.reply.is_fenced:
        context.states.record_heartbeat(request.broker_id, request.current_metadata_offset, request.offline_log_dirs)
    return decision


_DECISIONS: Final[Mapping[type, DecisionFunction]] = {
    AllocateProducerIdsRequest: lambda view, request, _: allocate_producer_ids(view, request),
    AlterClientQuotasRequest: lambda view, request, context: alter_client_quotas(
        view, request, unknown_hosts=context.requester.unknown_hosts
    ),
    AlterConfigsRequest: lambda view, request, context: alter_configs(
        view, request, forwarded=context.requester.is_from_broker
    ),
    AlterPartitionReassignmentsRequest: lambda view, request, _: alter_partition_reassignments(view, request),
    AlterPartitionRequest: lambda view, request, _: alter_partition(view, request),
    AlterUserScramCredentialsRequest: lambda view, request, _: alter_scram_credentials(view, request),
    AssignReplicasToDirsRequest: lambda view, request, _: assign_replicas_to_dirs(view, request),
    BrokerHeartbeatRequest: _process_heartbeat,
    BrokerRegistrationRequest: _register_broker,
    ControllerRegistrationRequest: lambda view, request, _: register_controller(view, request),
    CreateAclsRequest: lambda view, request, context: create_acls(view, request, new_id=context.new_id),
    CreateDelegationTokenRequest: _create_token,
    CreatePartitionsRequest: lambda view, request, context: create_partitions(
        view, request, random=context.random, charge=context.requester.charge
    ),
    CreateTopicsRequest: _create_topics,
    DeleteAclsRequest: lambda view, request, _: delete_acls(view, request),
    DeleteTopicsRequest: lambda view, request, context: delete_topics(view, request, charge=context.requester.charge),
    ElectLeadersRequest: lambda view, request, _: elect_leaders(view, request),
    ExpireDelegationTokenRequest: lambda view, request, context: expire_delegation_token(
        view, request, principal=context.requester.principal, now_ms=context.now_ms()
    ),
    IncrementalAlterConfigsRequest: lambda view, request, context: incremental_alter_configs(
        view, request, forwarded=context.requester.is_from_broker
    ),
    ListPartitionReassignmentsRequest: lambda view, request, _: Decision(
        (), list_partition_reassignments(view, request)
    ),
    RenewDelegationTokenRequest: lambda view, request, context: renew_delegation_token(
        view, request, principal=context.requester.principal, now_ms=context.now_ms()
    ),
    UnregisterBrokerRequest: lambda view, request, context: unregister_broker(view, context.heartbeats, request),
    UpdateFeaturesRequest: _update_features,
}
REQUESTS_WITH_DEADLINE: Final = frozenset(
    {
        CreateTopicsRequest,
        DeleteTopicsRequest,
        CreatePartitionsRequest,
        ElectLeadersRequest,
        AlterPartitionReassignmentsRequest,
    }
)
"""Requests whose timeout limits how long they wait for their decision."""
