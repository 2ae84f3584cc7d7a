"""Members of groups without a client library: a connection and a thread each, so that hundreds cost the machine little.

Each does what a consumer does, with the heartbeats of one that is in a hurry, until the whole group has come to rest.
"""

import socket
import time
from collections.abc import Callable
from threading import Barrier, Event, Thread
from typing import Any
from uuid import uuid4

from bench.harness.node_requests import NoResponse, send_request
from bench.harness.tools import ToolFailed
from ottla.protocol.messages.rpc.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.protocol.messages.rpc.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.rpc.heartbeat import HeartbeatRequest
from ottla.protocol.messages.rpc.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.rpc.leave_group import LeaveGroupRequest
from ottla.protocol.messages.rpc.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

HEARTBEAT_S = 0.1
PATIENCE_S = 120.0
_SESSION_MS = 60_000
_REBALANCE_IN_PROGRESS, _MEMBER_ID_REQUIRED = 27, 79
_NOT_READY = (14, 15, 16)
"""It loads, is not available, is not this one."""
_LEAVE = -1


class Group:
    """Members of one group, all of which begin at the same moment. `rested` says whether the group is as it should."""

    def __init__(self, port: int, name: str, members: int) -> None:
        self.port = port
        self.name = name
        self.members = members
        self.held: dict[int, Any] = {}
        """What each member has: a generation, or partitions."""
        self._is_stable = Event()
        self._problems: list[Exception] = []

    def find_coordinator(self) -> None:
        """Return when there is one that is ready: the first group of a cluster waits for its topic to be made."""
        beat = HeartbeatRequest(group_id=self.name, member_id="nobody")
        with self.connect() as connection:

            def find() -> int:
                found = send_request(connection, FindCoordinatorRequest(coordinator_keys=[self.name]), 4).coordinators[
                    0
                ]
                return int(found.error_code) or int(send_request(connection, beat, 3).error_code)

            until_ready(find)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)

    def join_all(self, member: "Member") -> float:
        """Let all members join; the milliseconds until the group has come to rest."""
        ready = Barrier(self.members + 1)

        def run(number: int) -> None:
            try:
                with self.connect() as connection:
                    ready.wait()
                    member(self, number, connection)
            except (OSError, NoResponse, ToolFailed) as problem:
                self._problems.append(problem)
                self._is_stable.set()

        threads = [Thread(target=run, args=(number,), daemon=True) for number in range(self.members)]
        for thread in threads:
            thread.start()
        ready.wait()
        began = time.perf_counter()
        rested = self._is_stable.wait(PATIENCE_S)
        took = (time.perf_counter() - began) * 1000
        for thread in threads:
            thread.join(PATIENCE_S)
        if self._problems or not rested:
            raise ToolFailed(f"{self.name} does not come to rest: {self._problems[:1]}")
        return took

    def hold(self, number: int, what: Any, is_rest: Callable[[list[Any]], bool]) -> None:
        """Note what a member has; the last one that this takes lets the group be at rest."""
        self.held[number] = what
        if len(self.held) == self.members and is_rest(list(self.held.values())):
            self._is_stable.set()

    def wait_for_heartbeat(self) -> bool:
        """Wait for the next heartbeat; False when the group is at rest."""
        return not self._is_stable.wait(HEARTBEAT_S)


Member = Callable[[Group, int, socket.socket], None]
"""What one of them does, told its number and given its connection."""


def until_ready(ask_for_error: Callable[[], int]) -> int:
    """Ask until the error is not that of a coordinator which is still to come; that error."""
    deadline = time.monotonic() + PATIENCE_S
    while (code := ask_for_error()) in _NOT_READY:
        if time.monotonic() > deadline:
            raise ToolFailed(f"there is no coordinator: error {code}")
        time.sleep(0.05)
    return code


def classic_member(group: Group, number: int, connection: socket.socket) -> None:
    """Join, and join again whenever the group rebalances. The leader's assignment is its number: nobody reads it."""
    member_id = ""
    while True:
        join = JoinGroupRequest(
            group_id=group.name,
            session_timeout_ms=_SESSION_MS,
            rebalance_timeout_ms=_SESSION_MS,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00")],
        )
        joined = send_request(connection, join, 5)
        member_id = joined.member_id
        if joined.error_code == _MEMBER_ID_REQUIRED:
            continue
        _check(joined.error_code, "JoinGroup")
        generation = joined.generation_id
        given = [SyncGroupRequestAssignment(member_id=each.member_id, assignment=b"mine") for each in joined.members]
        sync = SyncGroupRequest(group_id=group.name, generation_id=generation, member_id=member_id, assignments=given)
        synced = send_request(connection, sync, 3)
        if synced.error_code == _REBALANCE_IN_PROGRESS:
            continue
        _check(synced.error_code, "SyncGroup")
        group.hold(number, generation, lambda held: len(set(held)) == 1)
        beat = HeartbeatRequest(group_id=group.name, generation_id=generation, member_id=member_id)
        while (code := send_request(connection, beat, 3).error_code) == 0:
            if not group.wait_for_heartbeat():
                _check(
                    send_request(connection, LeaveGroupRequest(group_id=group.name, member_id=member_id), 2).error_code,
                    "",
                )
                return
        if code != _REBALANCE_IN_PROGRESS:
            _check(code, "Heartbeat")


def consumer_member(topic: str) -> Member:
    """A member of a group of the new protocol, which takes and gives up partitions at once."""

    def run(group: Group, number: int, connection: socket.socket) -> None:
        member_id, epoch = str(uuid4()), 0
        owned: list[TopicPartitions] | None = []
        while True:
            beat = ConsumerGroupHeartbeatRequest(
                group_id=group.name,
                member_id=member_id,
                member_epoch=epoch,
                rebalance_timeout_ms=_SESSION_MS if epoch == 0 else -1,
                subscribed_topic_names=[topic] if epoch == 0 else None,
                topic_partitions=owned,
            )
            answer = send_request(connection, beat, 1)
            _check(answer.error_code, "ConsumerGroupHeartbeat")
            epoch = answer.member_epoch
            if answer.assignment is None:
                owned = None
            else:
                owned = answer.assignment.topic_partitions
                mine = frozenset(index for each in owned for index in each.partitions)
                group.hold(number, mine, _is_shared)
                continue  # tells at once what it owns now
            if not group.wait_for_heartbeat():
                leave = ConsumerGroupHeartbeatRequest(group_id=group.name, member_id=member_id, member_epoch=_LEAVE)
                _check(send_request(connection, leave, 1).error_code, "ConsumerGroupHeartbeat")
                return

    return run


def _is_shared(held: list[frozenset[int]]) -> bool:
    """Whether everybody has one partition, and no two the same."""
    return all(len(each) == 1 for each in held) and len(frozenset().union(*held)) == len(held)


def _check(code: int, what: str) -> None:
    if code:
        raise ToolFailed(f"{what} got error {code}")
