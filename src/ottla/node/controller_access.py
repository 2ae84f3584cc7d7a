"""Sends requests to the active controller and the quorum, for this node and on behalf of its clients.

The active controller is on this node or on another; the quorum knows which. A request that does not reach an active
controller is retried until its timeout: at once when a leader is elected, otherwise with a growing delay.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.broker.authorization.actions import AclStore
from ottla.broker.requests.call import Call
from ottla.broker.requests.envelope import Enclosed
from ottla.broker.requests.throttling import Throttling
from ottla.metadata.consensus.effects import RoleChanged
from ottla.metadata.runtime.active_controller import THIS_NODE, ActiveController
from ottla.metadata.runtime.decisions import Requester
from ottla.metadata.runtime.quorum_driver import QuorumDriver
from ottla.node.broker_liveness import BrokerLivenessMonitor
from ottla.node.controller_link import FORWARDING, HEARTBEATS, ControllerLink
from ottla.node.forwarding import enclose, open_answer
from ottla.node.quota_hosts import unknown_hosts
from ottla.protocol.errors import NotController, RequestTimedOut, by_code
from ottla.protocol.messages.apis import BY_KEY
from ottla.protocol.messages.rpc.add_raft_voter import AddRaftVoterRequest
from ottla.protocol.messages.rpc.alter_client_quotas import AlterClientQuotasRequest
from ottla.protocol.messages.rpc.alter_partition import AlterPartitionRequest
from ottla.protocol.messages.rpc.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from ottla.protocol.messages.rpc.broker_heartbeat import BrokerHeartbeatRequest
from ottla.protocol.messages.rpc.broker_registration import BrokerRegistrationRequest
from ottla.protocol.messages.rpc.create_acls import CreateAclsRequest
from ottla.protocol.messages.rpc.delete_acls import DeleteAclsRequest
from ottla.protocol.messages.rpc.describe_quorum import DescribeQuorumRequest
from ottla.protocol.messages.rpc.remove_raft_voter import RemoveRaftVoterRequest
from ottla.protocol.wire.declare import schema_of
from ottla.replication.awaited_ticket import AwaitedTicket
from ottla.security.settings import SecurityProvider, plaintext

if TYPE_CHECKING:
    from ottla.node.policies import Policies

_WAIT_S: Final = 30.0
_RETRY_S: Final = 0.02
_LONGEST_RETRY_S: Final = 0.25
_FOR_QUORUM: Final = (DescribeQuorumRequest, AddRaftVoterRequest, RemoveRaftVoterRequest)
_TRAFFIC: Final[dict[type, str]] = {
    BrokerRegistrationRequest: HEARTBEATS,
    BrokerHeartbeatRequest: HEARTBEATS,
    AlterPartitionRequest: "alter-partition",
    AssignReplicasToDirsRequest: "directories",
}
_OWN: Final = "own"


class ControllerAccess:
    """The active controller, wherever it is. The node sets `controller` and `quorum` when it creates them."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, node_id: int = -1, security: SecurityProvider = plaintext
    ) -> None:
        self._loop = loop
        self._role_changed = asyncio.Event()
        self.link = ControllerLink(node_id, security)
        self.controller: ActiveController | None = None
        self.quorum: QuorumDriver | None = None
        self.throttling: Throttling | None = None
        """Charges topic changes to the quotas of clients."""
        self.policies: Policies | None = None
        """The policies of this node's controller."""
        self.acl_store: AclStore | None = None
        """An authorizer plug-in that stores ACLs itself, instead of the cluster's metadata."""
        self.broker_liveness: BrokerLivenessMonitor | None = None
        """Watches the connections of brokers to this node's controller."""
        self.on_leader: list[Callable[[], None]] = []
        """Called when a leader is elected."""

    def on_role(self, change: RoleChanged) -> None:
        """Follow a change of role: waiting requests try again."""
        assert self.quorum is not None, "the quorum is joined before it has roles"
        self.link.lead(self.quorum.consensus.leader_node)
        role_changed, self._role_changed = self._role_changed, asyncio.Event()
        role_changed.set()
        if change.leader_id >= 0:
            for notify in self.on_leader:
                notify()

    async def ask(self, request: Any, *, timeout_s: float | None = None) -> Any:
        """Return the active controller's response to a request of this node's own.

        Waits for a controller to become active. Raises NotController if none does in time, and the error of the
        response as a whole.
        """

        async def attempt(left_s: float) -> Any:
            traffic = _TRAFFIC.get(type(request), _OWN)
            if self._is_remote:
                return await self.link.send(traffic, request, left_s)
            return await self._submit(request, self._this_node(request, traffic))

        answer = await self._retry(attempt, _WAIT_S if timeout_s is None else timeout_s)
        code = getattr(answer, "error_code", 0)
        if code:
            raise by_code(code)(getattr(answer, "error_message", None))
        return answer

    async def forward(self, call: Call[Any], request: Any) -> Any:
        """Return the active controller's response to a request that a client sent to this broker.

        The client waits for an active controller no longer than it would wait for any broker.
        """

        async def attempt(left_s: float) -> Any:
            if self._is_remote:
                self.link.require_leader()
                return open_answer(call, await self.link.send(FORWARDING, enclose(call, request), left_s))
            if isinstance(request, _FOR_QUORUM):
                return await self._ask_leading_quorum(call, request)
            return await self._decide(call, request, is_from_broker=True)

        try:
            return await self._retry(attempt, _WAIT_S)
        except NotController:
            raise RequestTimedOut("no controller became active in time") from None

    async def decide(self, call: Call[Any], request: Any) -> Any:
        """Return the response to a request that arrived at this node's controller; raise NotController if it is not the
        active one."""
        answer = await self._decide(call, request, is_from_broker=isinstance(call.exchange, Enclosed))
        if self.broker_liveness is not None and isinstance(request, BrokerHeartbeatRequest):
            self.broker_liveness.on_heartbeat(call, request)
        return answer

    async def _decide(self, call: Call[Any], request: Any, *, is_from_broker: bool) -> Any:
        """Let this node's controller decide. A client that makes too many changes gets a throttle time."""
        if self.acl_store is not None and isinstance(request, CreateAclsRequest | DeleteAclsRequest):
            return await self._change_acls(self.acl_store, call, request)
        charging = None if self.throttling is None else self.throttling.charge_of(call)
        unknown = await unknown_hosts(request) if isinstance(request, AlterClientQuotasRequest) else frozenset()
        requester = Requester(
            call.client.principal, is_from_broker=is_from_broker, charge=charging, unknown_hosts=unknown
        )
        answer = await self._submit(request, requester)
        if charging is not None and charging.throttle_ms:
            answer.throttle_time_ms = max(answer.throttle_time_ms, charging.throttle_ms)
        return answer

    def _this_node(self, request: Any, traffic: str) -> Requester:
        """Return this node as the requester; its changes of topics are charged as if they came over the network."""
        if self.throttling is None:
            return THIS_NODE
        api, link = BY_KEY[schema_of(type(request)).key], self.link
        charge = self.throttling.charge_for(api.key, api.latest_stable, link.user, link.client_id(traffic))
        return THIS_NODE if charge is None else THIS_NODE._replace(charge=charge)

    async def _change_acls(
        self, acl_store: AclStore, call: Call[Any], request: CreateAclsRequest | DeleteAclsRequest
    ) -> Any:
        """Let the authorizer on the active controller change the ACLs that it keeps."""
        if not self._require_controller().is_active:
            raise NotController("another controller is active, or none yet")
        if isinstance(request, CreateAclsRequest):
            return await acl_store.create_acls(call, request)
        return await acl_store.delete_acls(call, request)

    async def _submit(self, request: Any, requester: Requester) -> Any:
        """Submit a request to this node's controller, after its policies have judged the request."""
        controller = self._require_controller()
        if self.policies is not None and self.policies.applies_to(request):
            return await self.policies.decide(controller, request, requester)
        return await controller.submit(request, requester)

    def ask_quorum(self, call: Call[Any], request: Any) -> None:
        """Pass a call to consensus, which answers it."""
        assert self.quorum is not None, "the quorum is joined before its listener is opened"
        self.quorum.request(call, request, call.version, call.client.listener)

    def leader_id(self) -> int:
        """Return the node with the active controller; -1 if no controller is active."""
        return -1 if self.quorum is None else self.quorum.consensus.leader_id

    def kraft_version(self) -> int:
        """Return the level of kraft.version."""
        return 0 if self.quorum is None else self.quorum.consensus.history.kraft_version

    def controller_versions(self) -> Mapping[int, tuple[int, int]] | None:
        """Return the API versions of the active controller; None if it is on this node or unknown."""
        return self.link.versions

    async def _retry(self, attempt: Callable[[float], Awaitable[Any]], timeout_s: float) -> Any:
        deadline = self._loop.time() + timeout_s
        pause_s = _RETRY_S
        while True:
            role_changed = self._role_changed
            left_s = max(deadline - self._loop.time(), _RETRY_S)
            try:
                return await attempt(left_s)
            except NotController:
                if self._loop.time() > deadline:
                    raise
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(pause_s, left_s)):
                    await role_changed.wait()
            pause_s = min(pause_s * 2, _LONGEST_RETRY_S)

    async def _ask_leading_quorum(self, call: Call[Any], request: Any) -> Any:
        if self.quorum is None or not self._leads:
            raise NotController("this node does not lead the quorum")
        ticket = AwaitedTicket(self._loop.create_future())
        self.quorum.request(ticket, request, call.version, self.quorum.listener)
        return await ticket.future

    @property
    def _leads(self) -> bool:
        return self.quorum is not None and self.quorum.consensus.is_leader

    @property
    def _is_remote(self) -> bool:
        """Whether the request must go to another node. A node without a controller always asks another."""
        return self.link.leader is not None or self.controller is None

    def _require_controller(self) -> ActiveController:
        if self.controller is None:
            raise NotController("this node has no controller")
        return self.controller
