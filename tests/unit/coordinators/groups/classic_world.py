"""A coordinator on virtual time for classic groups and offsets, with parked requests, markers and failing appends."""

import struct
from collections.abc import Sequence
from typing import Any

from ottla.coordinators.groups.classic.group import ClassicGroup
from ottla.coordinators.groups.classic_protocol import heartbeat, join_group, leave_group, sync_group
from ottla.coordinators.groups.offsets import commit_in_transaction, commit_offsets, fetch_offsets
from ottla.coordinators.groups.state import NO_OFFSETS, OffsetKey
from ottla.protocol.errors import ApiError, CoordinatorNotAvailable, NotCoordinator
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.protocol.messages.rpc.heartbeat import HeartbeatRequest
from ottla.protocol.messages.rpc.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.messages.rpc.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.rpc.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.rpc.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.messages.rpc.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.protocol.messages.rpc.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.protocol.wire.codec import encode
from ottla.protocol.wire.control import transaction_marker
from ottla.storage.state_machine.decision import PARKED, Decision
from ottla.storage.state_machine.entries import Entry, Marker
from tests.unit.coordinators.groups.consumer.world import World

GROUP = "g"


def subscription(*topics: str) -> bytes:
    """Return the encoded subscription of a consumer."""
    return b"\0\0" + encode(ConsumerProtocolSubscription(topics=list(topics)), 0)


class Waiting:
    """A request and its response or error, once it has one."""

    def __init__(self) -> None:
        self.response: Any = None
        self.error: ApiError | None = None

    @property
    def is_done(self) -> bool:
        return self.response is not None or self.error is not None

    @property
    def code(self) -> int:
        """The error code of the completed request."""
        assert self.is_done, "still waiting"
        return self.error.code if self.error is not None else int(self.response.error_code)

    def answer(self, response: Any, /) -> None:
        assert not self.is_done, f"answered twice: {self.response or self.error}, then {response}"
        self.response = response

    def fail(self, error: ApiError, /) -> None:
        assert not self.is_done, f"answered twice: {self.response or self.error}, then {error}"
        self.error = error


class ClassicWorld(World):
    """One coordinator for classic groups."""

    def __init__(self, topics: dict[str, int] | None = None, **settings: Any) -> None:
        self.fails = False
        """Whether appends fail for now."""
        self.waiting: list[Waiting] = []
        """All requests so far."""
        super().__init__(topics or {"t": 4}, **{"group_initial_rebalance_delay_ms": 0, **settings})

    @property
    def classic(self) -> ClassicGroup:
        group = self.state.groups[GROUP]
        assert isinstance(group, ClassicGroup)
        return group

    def _append(self, entries: Sequence[Entry], atomic: bool) -> int:
        if self.fails:
            raise CoordinatorNotAvailable("not enough replicas")
        first = entries[0]
        if not isinstance(first, Marker):
            return super()._append([entry for entry in entries if not isinstance(entry, Marker)], atomic)
        batch = transaction_marker(
            commit=first.is_commit,
            producer_id=first.producer_id,
            producer_epoch=first.producer_epoch,
            coordinator_epoch=first.coordinator_epoch,
            timestamp=self.now_ms,
            base_offset=len(self.log),
            leader_epoch=0,
        )
        struct.pack_into(">q", batch, 0, len(self.log))
        self.log.append(bytes(batch))
        return len(self.log) - 1

    def lose(self) -> None:
        """Lose the coordinator, and let another one take over."""
        error = NotCoordinator("it moved")
        parked = list(self._behaviour.parked_tickets(self.state))
        self.machine.deactivate(error)
        for ticket in parked:
            ticket.fail(error)
        self.reload()

    def ask(self, decide: Any) -> Waiting:
        """Submit a request; it may be answered at once."""
        waiting = Waiting()
        self.waiting.append(waiting)

        def reply(result: Any) -> None:
            if isinstance(result, ApiError):
                waiting.fail(result)
            elif result is not PARKED:
                waiting.answer(result)

        self.machine.submit("test", lambda state: decide(state, waiting), reply)
        self.machine.committed(len(self.log))
        return waiting

    # -- requests --

    def join_group(
        self, member: str = "", *, version: int = 9, topics: Sequence[str] = ("t",), **fields: Any
    ) -> Waiting:
        protocols = [JoinGroupRequestProtocol(name="range", metadata=subscription(*topics))]
        request = JoinGroupRequest(
            **{
                "group_id": GROUP,
                "member_id": member,
                "session_timeout_ms": 10_000,
                "rebalance_timeout_ms": 60_000,
                "protocol_type": "consumer",
                "protocols": protocols,
                **fields,
            }
        )
        context = self.context(version)
        return self.ask(lambda state, ticket: join_group(state, request, ticket, context))

    def joined(self, **fields: Any) -> JoinGroupResponse:
        """Join an empty group; return the response that begins its generation."""
        waiting = self.join_group(version=1, **fields)
        self.pass_time(1)
        answer = waiting.response
        assert isinstance(answer, JoinGroupResponse), waiting.error
        return answer

    def sync(self, member: str, generation: int, assignments: dict[str, bytes] | None = None, **fields: Any) -> Waiting:
        request = SyncGroupRequest(
            group_id=GROUP,
            member_id=member,
            generation_id=generation,
            assignments=[
                SyncGroupRequestAssignment(member_id=each, assignment=data)
                for each, data in (assignments or {}).items()
            ],
            **fields,
        )
        context = self.context(5)
        return self.ask(lambda state, ticket: sync_group(state, request, ticket, context))

    def stay(self, member: str, generation: int, **fields: Any) -> int:
        """Return the error code of a heartbeat."""
        request = HeartbeatRequest(group_id=GROUP, member_id=member, generation_id=generation, **fields)
        context = self.context(4)
        return self.ask(lambda state, _: heartbeat(state, request, context)).code

    def go(self, *members: str) -> Waiting:
        request = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=each) for each in members])
        context = self.context(5)
        return self.ask(lambda state, _: leave_group(state, request, context))

    def commit(self, partition: int, offset: int, member: str = "", generation: int = -1, **fields: Any) -> int:
        """Return the error code of a commit."""
        topic = OffsetCommitRequestTopic(
            name="t", partitions=[OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)]
        )
        request = OffsetCommitRequest(
            **{
                "group_id": GROUP,
                "member_id": member,
                "generation_id_or_member_epoch": generation,
                "topics": [topic],
                **fields,
            }
        )
        context = self.context(8)
        waiting = self.ask(lambda state, _: commit_offsets(state, request, context))
        return waiting.error.code if waiting.error else int(waiting.response.topics[0].partitions[0].error_code)

    def commit_in_transaction(self, partition: int, offset: int, producer: int, **fields: Any) -> int:
        topic = TxnOffsetCommitRequestTopic(
            name="t", partitions=[TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)]
        )
        request = TxnOffsetCommitRequest(
            group_id=GROUP, transactional_id="x", producer_id=producer, producer_epoch=0, topics=[topic], **fields
        )
        context = self.context(3)
        waiting = self.ask(lambda state, _: commit_in_transaction(state, request, context))
        return waiting.error.code if waiting.error else int(waiting.response.topics[0].partitions[0].error_code)

    def end_transaction(self, producer: int, *, commit: bool) -> None:
        marker = Marker(producer, 0, commit, 0)
        self.decide(lambda _: Decision([marker], None))

    def fetch(self, *, stable: bool = False) -> dict[int, int]:
        """Return the group's offsets in the topic; unstable ones are -88."""
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=list(range(4)))]
        asked = OffsetFetchRequestGroup(group_id=GROUP, topics=topics)
        found = fetch_offsets(self.state, asked, self.context(8), require_stable=stable)
        return {
            each.partition_index: -each.error_code if each.error_code else each.committed_offset
            for each in found.topics[0].partitions
            if each.error_code or each.committed_offset >= 0
        }

    def offset(self, partition: int) -> int | None:
        found = self.state.offsets.get(GROUP, NO_OFFSETS).get(OffsetKey("t", partition))
        return None if found is None else found.offset
