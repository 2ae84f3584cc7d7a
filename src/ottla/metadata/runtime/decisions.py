"""Which decision a request to the controller asks for, and with what beside the request itself."""

from __future__ import annotations

from collections.abc import Callable
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
from ottla.metadata.runtime.quorum import Quorum
from ottla.protocol.errors import UnsupportedVersion
from ottla.protocol.wire.declare import schema_of
from ottla.storage.directories.node_files import show_id
from ottla.storage.directories.random_ids import random_id

Decide = Callable[[ControllerView], Decision[Any]]
TIMED: Final = frozenset(
    {"CreateTopics", "DeleteTopics", "CreatePartitions", "ElectLeaders", "AlterPartitionReassignments"}
)
"""Requests that say by when they must have been begun."""


class Asker(NamedTuple):
    """Who asks the controller, and how the request came."""

    principal: str
    through_broker: bool
    """A broker, which knows its own settings and directories, has looked at the request before."""
    charge: Charge | None = None
    """Counts the changes to topics, if the client has a quota for them."""
    unknown_hosts: frozenset[str] = frozenset()
    """Hosts that the request names and that have no address."""


def name_of(request: Any) -> str:
    """The name of a request's API."""
    return schema_of(type(request)).name.removesuffix("Request")


class Decisions:
    """The controller's decisions, with what they need of this node."""

    def __init__(
        self,
        quorum: Quorum,
        heartbeats: Heartbeats,
        states: StateTracker,
        *,
        random: Random,
        now_ms: Callable[[], int],
    ) -> None:
        self._quorum = quorum
        self._heartbeats = heartbeats
        self._states = states
        self._random = random
        self._now_ms = now_ms

    def on(self, request: Any, asker: Asker) -> Decide:
        """What decides on a request; raises UnsupportedVersion if nothing here does."""
        name = name_of(request)
        plain = _PLAIN.get(name)
        if plain is not None:
            return lambda view: plain(view, request)
        method = _METHODS.get(name)
        if method is None:
            raise UnsupportedVersion(f"the controller does not decide on {name}")
        return lambda view: method(self, view, request, asker)

    def _create_topics(self, view: ControllerView, request: Any, asker: Asker) -> Decision[Any]:
        context = CreationContext(random=self._random, new_id=self._new_id, charge=asker.charge)
        return create_topics(view, request, context)

    def _create_partitions(self, view: ControllerView, request: Any, asker: Asker) -> Decision[Any]:
        return create_partitions(view, request, random=self._random, charge=asker.charge)

    def _delete_topics(self, view: ControllerView, request: Any, asker: Asker) -> Decision[Any]:
        return delete_topics(view, request, charge=asker.charge)

    def _alter_client_quotas(self, view: ControllerView, request: Any, asker: Asker) -> Decision[Any]:
        return alter_client_quotas(view, request, unknown_hosts=asker.unknown_hosts)

    def _create_acls(self, view: ControllerView, request: Any, asker: Asker) -> Decision[Any]:
        return create_acls(view, request, new_id=self._new_id)

    def _incremental_alter_configs(self, view: ControllerView, request: Any, asker: Asker) -> Decision[Any]:
        return incremental_alter_configs(view, request, forwarded=asker.through_broker)

    def _alter_configs(self, view: ControllerView, request: Any, asker: Asker) -> Decision[Any]:
        return alter_configs(view, request, forwarded=asker.through_broker)

    def _update_features(self, view: ControllerView, request: Any, asker: Asker) -> Decision[Any]:
        consensus = self._quorum.consensus
        current = consensus.history.kraft_version
        voters = [key.id for key in consensus.voters.replicas]
        decision = update_features(view, request, kraft_version=current, voters=voters)
        asked = requested_kraft_version(request)
        if asked is not None and asked > current and not decision.reply.error_code:
            # It is the quorum's: consensus writes it into the log itself, ahead of what is decided here.
            self._quorum.upgrade_kraft_version(consensus.epoch, asked)
        return decision

    def _broker_registration(self, view: ControllerView, request: Any, asker: Asker) -> Decision[Any]:
        return register_broker(
            view,
            self._heartbeats,
            request,
            now_ms=self._now_ms(),
            next_offset=self._quorum.log.end_offset,
            kraft_version=self._quorum.consensus.history.kraft_version,
        )

    def _broker_heartbeat(self, view: ControllerView, request: Any, asker: Asker) -> Decision[Any]:
        decision = process_broker_heartbeat(
            view, self._heartbeats, request, now_ms=self._now_ms(), next_offset=self._quorum.log.end_offset
        )
        if not decision.reply.is_fenced:
            self._states.record_heartbeat(request.broker_id, request.current_metadata_offset, request.offline_log_dirs)
        return decision

    def _unregister_broker(self, view: ControllerView, request: Any, asker: Asker) -> Decision[Any]:
        return unregister_broker(view, self._heartbeats, request)

    def _list_reassignments(self, view: ControllerView, request: Any, asker: Asker) -> Decision[Any]:
        return Decision((), list_partition_reassignments(view, request))

    def _create_token(self, view: ControllerView, request: Any, asker: Asker) -> Decision[Any]:
        def new_id() -> str:
            return show_id(self._new_id())

        return create_delegation_token(
            view, request, principal=asker.principal, now_ms=self._now_ms(), new_token_id=new_id
        )

    def _renew_token(self, view: ControllerView, request: Any, asker: Asker) -> Decision[Any]:
        return renew_delegation_token(view, request, principal=asker.principal, now_ms=self._now_ms())

    def _expire_token(self, view: ControllerView, request: Any, asker: Asker) -> Decision[Any]:
        return expire_delegation_token(view, request, principal=asker.principal, now_ms=self._now_ms())

    def _new_id(self) -> bytes:
        return random_id(self._random.randbytes)


_PLAIN: Final[dict[str, Callable[[ControllerView, Any], Decision[Any]]]] = {
    "AlterPartition": alter_partition,
    "ElectLeaders": elect_leaders,
    "AlterPartitionReassignments": alter_partition_reassignments,
    "AllocateProducerIds": allocate_producer_ids,
    "DeleteAcls": delete_acls,
    "AlterUserScramCredentials": alter_scram_credentials,
    "AssignReplicasToDirs": assign_replicas_to_dirs,
    "ControllerRegistration": register_controller,
}
_METHODS: Final[dict[str, Callable[[Decisions, ControllerView, Any, Asker], Decision[Any]]]] = {
    "CreateTopics": Decisions._create_topics,
    "CreatePartitions": Decisions._create_partitions,
    "DeleteTopics": Decisions._delete_topics,
    "AlterClientQuotas": Decisions._alter_client_quotas,
    "CreateAcls": Decisions._create_acls,
    "IncrementalAlterConfigs": Decisions._incremental_alter_configs,
    "AlterConfigs": Decisions._alter_configs,
    "UpdateFeatures": Decisions._update_features,
    "BrokerRegistration": Decisions._broker_registration,
    "BrokerHeartbeat": Decisions._broker_heartbeat,
    "UnregisterBroker": Decisions._unregister_broker,
    "ListPartitionReassignments": Decisions._list_reassignments,
    "CreateDelegationToken": Decisions._create_token,
    "RenewDelegationToken": Decisions._renew_token,
    "ExpireDelegationToken": Decisions._expire_token,
}
