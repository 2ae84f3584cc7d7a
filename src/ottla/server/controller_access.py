"""The ways from this node to the active controller and to the quorum, for its own requests and for its clients'."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from ottla.api.call import Call
from ottla.api.envelope import Enclosed
from ottla.errors import NotController, RequestTimedOut
from ottla.messages.add_raft_voter import AddRaftVoterRequest
from ottla.messages.describe_quorum import DescribeQuorumRequest
from ottla.messages.remove_raft_voter import RemoveRaftVoterRequest
from ottla.server.active_controller import ActiveController
from ottla.server.decisions import Asker
from ottla.server.quorum import Quorum

_WAIT_S: Final = 30.0
_RETRY_S: Final = 0.02
_FOR_QUORUM: Final = (DescribeQuorumRequest, AddRaftVoterRequest, RemoveRaftVoterRequest)


class ControllerAccess:
    """Asks whoever is in charge. Both members are put in when the node has them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.controller: ActiveController | None = None
        self.quorum: Quorum | None = None

    async def ask(self, request: Any) -> Any:
        """The answer to a request of this node's own; waits for a controller to become active."""
        deadline = self._loop.time() + _WAIT_S
        while True:
            try:
                return await self._active().submit(request)
            except NotController:
                if self._loop.time() > deadline:
                    raise
                await asyncio.sleep(_RETRY_S)

    async def forward(self, call: Call[Any], request: Any) -> Any:
        """The answer to a client's request; its client waits no longer than it would for any broker."""
        asker = Asker(call.client.principal, through_broker=True)
        deadline = self._loop.time() + _WAIT_S
        while True:
            try:
                if isinstance(request, _FOR_QUORUM):
                    return await self._of_quorum(call, request)
                return await self._active().submit(request, asker)
            except NotController:
                if self._loop.time() > deadline:
                    raise RequestTimedOut("no controller became active in time") from None
                await asyncio.sleep(_RETRY_S)

    async def decide(self, call: Call[Any], request: Any) -> Any:
        """The answer to a request that came to this node's controller, active or not."""
        asker = Asker(call.client.principal, through_broker=isinstance(call.exchange, Enclosed))
        return await self._active().submit(request, asker)

    def ask_quorum(self, call: Call[Any], request: Any) -> None:
        """Let consensus answer a call."""
        assert self.quorum is not None, "the quorum is joined before its listener is opened"
        self.quorum.request(call, request, call.version, call.client.listener)

    def leader_id(self) -> int:
        """The node with the active controller; -1 while there is none."""
        return -1 if self.quorum is None else self.quorum.consensus.leader_id

    def kraft_version(self) -> int:
        """The version of the quorum's own records."""
        return 0 if self.quorum is None else self.quorum.consensus.history.kraft_version

    async def _of_quorum(self, call: Call[Any], request: Any) -> Any:
        if self.quorum is None or not self.quorum.consensus.is_leader:
            raise NotController("this node does not lead the quorum")
        ticket = _Awaited(self._loop.create_future())
        self.quorum.request(ticket, request, call.version, self.quorum.listener)
        return await ticket.future

    def _active(self) -> ActiveController:
        if self.controller is None:
            raise NotController("this node has no controller")
        return self.controller


class _Awaited:
    """A request to consensus whose answer is waited for."""

    def __init__(self, future: asyncio.Future[Any]) -> None:
        self.future = future

    def answer(self, response: Any) -> None:
        if not self.future.done():
            self.future.set_result(response)
