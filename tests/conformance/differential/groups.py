"""Members of groups beside both nodes: each with connections of its own, and an id that each node made up for itself.

    with member(both, "a", group) as a, member(both, "b", group) as b:
        a.join()                # waits for the answer, and fails unless both nodes gave the same
        b.begin(b.join_request(), 9)
        ...
        b.end()

Ids are told apart by what tests call the members: in answers they read `a`, and `side_id` gives the id on one side.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from ottla.protocol.messages.rpc.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.rpc.heartbeat import HeartbeatRequest
from ottla.protocol.messages.rpc.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.rpc.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.rpc.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.rpc.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.protocol.messages.rpc.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.protocol.wire.codec import encode
from ottla.protocol.wire.declare import schema_of
from tests.conformance.differential.harness import (
    ANSWER_TIMEOUT_S,
    Answers,
    Asked,
    Both,
    Side,
    decode_response,
    frame_of,
)

MEMBER_ID_REQUIRED = 79
REBALANCE_IN_PROGRESS = 27
LATEST_JOIN = 9
READY_TIMEOUT_S = 30.0


def subscription(*topics: str) -> bytes:
    """What a consumer tells its group's leader."""
    return b"\0\0" + encode(ConsumerProtocolSubscription(topics=list(topics)), 0)


def coordinators_ready(both: Both) -> None:
    """Wait until both nodes have their group coordinator."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        answers = both.ask(FindCoordinatorRequest(coordinator_keys=["any"]), 6)
        fetched = both.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="any", topics=None)]), 8)
        codes = [each.coordinators[0].error_code for each in answers] + [each.groups[0].error_code for each in fetched]
        if not any(codes):
            return
        assert time.monotonic() < deadline, (answers, fetched)
        time.sleep(0.05)


class Member:
    """A member, or one who would like to be one."""

    def __init__(self, both: Both, name: str, group: str, *, instance: str | None = None, topics: Sequence[str] = ()):
        self.both = both
        self.name = name
        self.group = group
        self.instance = instance
        self.protocols = [("range", subscription(*topics))]
        self.protocol_type = "consumer"
        self.session_timeout_ms = 30_000
        self.rebalance_timeout_ms = 60_000
        self.generation = -1
        self._under_way: tuple[int, int] | None = None
        self._correlation_id = 1000

    def side_id(self, side: Side) -> str:
        """The id that a node gave it."""
        return str(side.memory.get(f"{self.group}/{self.name}", ""))

    def learn(self, answers: Answers) -> None:
        """Remember the ids in the answers to a join, and its generation."""
        for side, answer in zip(self.both.sides, answers, strict=True):
            if answer.member_id:
                side.memory[f"{self.group}/{self.name}"] = answer.member_id
                side.known.names[answer.member_id] = self.name
        if answers.ottla.generation_id >= 0:
            self.generation = answers.ottla.generation_id

    # -- requests that wait --

    def begin(self, request: Asked, version: int) -> None:
        """Send a request to both."""
        self._correlation_id += 1
        for side in self.both.sides:
            made = request(side) if callable(request) else request
            key = schema_of(type(made)).key
            side.send(frame_of(made, version, self._correlation_id, "differential"), "PLAINTEXT")
        self._under_way = key, version

    def end(self, *, ignoring: Sequence[str] = ()) -> Answers:
        """The answers to what was begun; they must be the same."""
        assert self._under_way is not None
        key, version = self._under_way
        self._under_way = None
        found = []
        for side in self.both.sides:
            frame = side.receive("PLAINTEXT", ANSWER_TIMEOUT_S)
            found.append(frame if isinstance(frame, str) else decode_response(key, version, frame)[1])
        answers = Answers(*found)
        if key == ApiKey.JOIN_GROUP and not any(isinstance(each, str) for each in answers):
            self.learn(answers)
        differences = self.both.differences(answers, version, ignoring=ignoring)
        assert not differences, differences
        return answers

    def same(self, request: Asked, version: int) -> Answers:
        self.begin(request, version)
        return self.end()

    # -- the requests of members --

    def join_request(self, **fields: Any) -> Asked:
        def make(side: Side) -> JoinGroupRequest:
            values: dict[str, Any] = {
                "group_id": self.group,
                "session_timeout_ms": self.session_timeout_ms,
                "rebalance_timeout_ms": self.rebalance_timeout_ms,
                "member_id": self.side_id(side),
                "group_instance_id": self.instance,
                "protocol_type": self.protocol_type,
                "protocols": [JoinGroupRequestProtocol(name=name, metadata=data) for name, data in self.protocols],
            }
            return JoinGroupRequest(**{**values, **fields})

        return make

    def begin_join(self, version: int = LATEST_JOIN, **fields: Any) -> None:
        """Ask to join; a new member fetches its id first."""
        is_new = not self.side_id(self.both.ottla)
        if version >= 4 and is_new and self.instance is None:
            answers = self.same(self.join_request(**fields), version)
            assert answers.ottla.error_code == MEMBER_ID_REQUIRED, answers
        self.begin(self.join_request(**fields), version)

    def join(self, version: int = LATEST_JOIN, **fields: Any) -> Answers:
        self.begin_join(version, **fields)
        return self.end()

    def sync_request(self, assignments: dict["Member", bytes] | None = None, **fields: Any) -> Asked:
        def make(side: Side) -> SyncGroupRequest:
            values: dict[str, Any] = {
                "group_id": self.group,
                "generation_id": self.generation,
                "member_id": self.side_id(side),
                "group_instance_id": self.instance,
                "protocol_type": self.protocol_type,
                "protocol_name": self.protocols[0][0],
                "assignments": [
                    SyncGroupRequestAssignment(member_id=member.side_id(side), assignment=data)
                    for member, data in (assignments or {}).items()
                ],
            }
            return SyncGroupRequest(**{**values, **fields})

        return make

    def heartbeat_request(self, **fields: Any) -> Asked:
        return lambda side: HeartbeatRequest(
            **{
                "group_id": self.group,
                "generation_id": self.generation,
                "member_id": self.side_id(side),
                "group_instance_id": self.instance,
                **fields,
            }
        )

    def heartbeat(self, version: int = 4, **fields: Any) -> int:
        """The error code of a heartbeat."""
        return int(self.same(self.heartbeat_request(**fields), version).ottla.error_code)

    def wait_for_rebalance(self) -> None:
        """Heartbeat until both nodes say that the group rebalances: what others sent may still be on its way."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while True:
            answers = self.both.ask(self.heartbeat_request(), 4)
            if all(each.error_code == REBALANCE_IN_PROGRESS for each in answers):
                return
            assert time.monotonic() < deadline, answers
            time.sleep(0.01)

    def leave_request(self) -> Asked:
        return lambda side: LeaveGroupRequest(
            group_id=self.group,
            member_id=self.side_id(side),
            members=[MemberIdentity(member_id=self.side_id(side), group_instance_id=self.instance)],
        )

    def commit_request(self, topic: str, offset: int, **fields: Any) -> Asked:
        def make(side: Side) -> OffsetCommitRequest:
            values: dict[str, Any] = {
                "group_id": self.group,
                "generation_id_or_member_epoch": self.generation,
                "member_id": self.side_id(side),
                "group_instance_id": self.instance,
                "topics": [
                    OffsetCommitRequestTopic(
                        name=topic,
                        topic_id=side.id_of(topic),
                        partitions=[OffsetCommitRequestPartition(committed_offset=offset, committed_metadata="so far")],
                    )
                ],
            }
            return OffsetCommitRequest(**{**values, **fields})

        return make


@contextmanager
def member(both: Both, name: str, group: str, **how: Any) -> Iterator[Member]:
    """A member with connections of its own."""
    with both.elsewhere() as own:
        for side, mine in zip(both.sides, own.sides, strict=True):
            mine.memory = side.memory
        yield Member(own, name, group, **how)
