"""Simulated consumers of the classic protocol, which do not know the kind of their group."""

from typing import Any

from ottla.coordinators.groups import classic_protocol
from ottla.protocol.errors import NONE, ApiError, MemberIdRequired, RebalanceInProgress, UnknownMemberId
from ottla.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from ottla.protocol.messages.rpc.heartbeat import HeartbeatRequest
from ottla.protocol.messages.rpc.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.protocol.messages.rpc.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.rpc.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.protocol.wire.codec import decode, encode
from ottla.storage.state_machine.decision import PARKED
from tests.unit.coordinators.groups.consumer.world import GROUP, World

VERSION = 2


class Ticket:
    """A request that may wait."""

    def __init__(self) -> None:
        self.answered: Any = None

    def answer(self, response: Any, /) -> None:
        assert self.answered is None
        self.answered = response

    def fail(self, error: ApiError, /) -> None:
        assert self.answered is None
        self.answered = error


class ClassicConsumer:
    """One consumer. The leader of a classic group assigns partitions round robin."""

    def __init__(self, world: World, topics: list[str], *, is_cooperative: bool) -> None:
        self.world = world
        self.topics = topics
        self.is_cooperative = is_cooperative
        self.id = ""
        self.generation = -1
        self.owned: set[tuple[bytes, int]] = set()
        self.must_join = True
        self.joining: Ticket | None = None
        self.syncing: Ticket | None = None

    def partitions(self) -> set[tuple[bytes, int]]:
        return self.owned

    def beat(self) -> None:
        """Take the next step: read a response, join, or send a heartbeat."""
        if self.joining is not None:
            if self.joining.answered is not None:
                ticket, self.joining = self.joining, None
                self._joined(ticket.answered)
        elif self.syncing is not None:
            if self.syncing.answered is not None:
                ticket, self.syncing = self.syncing, None
                self._synced(ticket.answered)
        elif self.must_join:
            self._join()
        else:
            self._heartbeat()

    def lose_coordinator(self) -> None:
        """Fail the waiting requests with the coordinator."""
        if self.joining is not None or self.syncing is not None:
            self.joining = self.syncing = None
            self.must_join = True

    def leave(self) -> None:
        request = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=self.id)])
        context = self.world.context(5)
        self._ask(lambda state, _: classic_protocol.leave_group(state, request, context))
        self.owned = set()

    def _ask(self, decide: Any) -> Ticket:
        ticket = Ticket()
        try:
            reply = self.world.decide(lambda state: decide(state, ticket))
        except ApiError as error:
            ticket.answered = error
        else:
            if reply is not PARKED:
                ticket.answered = reply
        return ticket

    def _join(self) -> None:
        self.must_join = False
        if not self.is_cooperative:
            self.owned = set()
        owned: dict[str, list[int]] = {}
        for topic_id, number in sorted(self.owned):
            if self.world.image.topic_by_id(topic_id) is not None:
                owned.setdefault(self.world.name_of(topic_id), []).append(number)
        message = ConsumerProtocolSubscription(
            topics=self.topics,
            owned_partitions=[TopicPartition(topic=name, partitions=numbers) for name, numbers in owned.items()],
            generation_id=self.generation,
        )
        data = b"\0\2" + bytes(encode(message, VERSION))
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            member_id=self.id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="turns", metadata=data)],
        )
        context = self.world.context(9)
        self.joining = self._ask(lambda state, ticket: classic_protocol.join_group(state, request, ticket, context))

    def _joined(self, answer: JoinGroupResponse | ApiError) -> None:
        code = answer.code if isinstance(answer, ApiError) else answer.error_code
        if isinstance(answer, ApiError) or code != NONE:
            if code == UnknownMemberId.code:
                self.id, self.owned = "", set()
            elif code == MemberIdRequired.code and isinstance(answer, JoinGroupResponse):
                self.id = answer.member_id
            self.must_join = True
            return
        self.id, self.generation = answer.member_id, answer.generation_id
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.id,
            protocol_type="consumer",
            protocol_name="turns",
            assignments=self._deal(answer) if answer.leader == self.id else [],
        )
        context = self.world.context(5)
        self.syncing = self._ask(lambda state, ticket: classic_protocol.sync_group(state, request, ticket, context))

    def _deal(self, answer: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        wanted = {
            each.member_id: decode(ConsumerProtocolSubscription, VERSION, bytes(each.metadata)[2:])
            for each in answer.members
        }
        dealt: dict[str, dict[str, list[int]]] = {member_id: {} for member_id in wanted}
        claimed = {
            (owned.topic, number): member_id
            for member_id, each in wanted.items()
            for owned in each.owned_partitions
            for number in owned.partitions
        }
        for name, topic in sorted(self.world.image.topics.items()):
            readers = sorted(member_id for member_id, each in wanted.items() if name in each.topics)
            for number in range(len(topic.partitions) if readers else 0):
                reader = readers[number % len(readers)]
                # Another member still owns the partition: the next rebalance moves it.
                if claimed.get((name, number), reader) == reader:
                    dealt[reader].setdefault(name, []).append(number)
        return [
            SyncGroupRequestAssignment(member_id=member_id, assignment=_assignment(topics))
            for member_id, topics in dealt.items()
        ]

    def _synced(self, answer: Any) -> None:
        code = answer.code if isinstance(answer, ApiError) else answer.error_code
        if code != NONE:
            self._refused(code)
            return
        found = decode(ConsumerProtocolAssignment, VERSION, bytes(answer.assignment)[2:]) if answer.assignment else None
        topics = [] if found is None else found.assigned_partitions
        new = {
            (topic.id, number)
            for each in topics
            if (topic := self.world.image.topic(each.topic)) is not None
            for number in each.partitions
        }
        if self.is_cooperative and self.owned - new:
            self.must_join = True  # it gave some up, for others to take
        self.owned = new

    def _heartbeat(self) -> None:
        request = HeartbeatRequest(group_id=GROUP, generation_id=self.generation, member_id=self.id)
        context = self.world.context(4)
        answer = self._ask(lambda state, _: classic_protocol.heartbeat(state, request, context)).answered
        code = answer.code if isinstance(answer, ApiError) else answer.error_code
        if code != NONE:
            self._refused(code)

    def _refused(self, code: int) -> None:
        if code == UnknownMemberId.code:
            self.id = ""
        if code != RebalanceInProgress.code:
            self.owned, self.generation = set(), -1
        self.must_join = True


def _assignment(topics: dict[str, list[int]]) -> bytes:
    named = [ConsumerProtocolAssignmentTopicPartition(topic=name, partitions=each) for name, each in topics.items()]
    return b"\0\2" + bytes(encode(ConsumerProtocolAssignment(assigned_partitions=named), VERSION))
