"""Group members without a client library, so that hundreds of them cost little: one connection and thread per member.

A member behaves like a consumer with a short heartbeat interval until the whole group is stable.
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
TIMEOUT_S = 120.0
_SESSION_MS = 60_000
_REBALANCE_IN_PROGRESS, _MEMBER_ID_REQUIRED = 27, 79
_NOT_READY = (14, 15, 16)
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR."""
_LEAVE = -1


class Group:
    """The members of one group, which all join at the same moment."""

    def __init__(self, port: int, name: str, members: int) -> None:
        self.port = port
        self.name = name
        self.members = members
        self.assignments: dict[int, Any] = {}
        """The generation or the partitions of each member."""
        self._is_stable = Event()
        self._problems: list[Exception] = []

    def find_coordinator(self) -> None:
        """Wait until the coordinator is ready: the first group of a cluster waits for the offsets topic."""
        heartbeat = HeartbeatRequest(group_id=self.name, member_id="nobody")
        with self.connect() as connection:

            def find() -> int:
                request = FindCoordinatorRequest(coordinator_keys=[self.name])
                coordinator = send_request(connection, request, 4).coordinators[0]
                return int(coordinator.error_code) or int(send_request(connection, heartbeat, 3).error_code)

            retry_until_ready(find)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), TIMEOUT_S)

    def join_all(self, member: "Member") -> float:
        """Let all members join. Return the milliseconds until the group is stable."""
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
        is_stable = self._is_stable.wait(TIMEOUT_S)
        duration_ms = (time.perf_counter() - began) * 1000
        for thread in threads:
            thread.join(TIMEOUT_S)
        if self._problems or not is_stable:
            raise ToolFailed(f"group {self.name} is not stable after {TIMEOUT_S:g} s: {self._problems[:1]}")
        return duration_ms

    def record_assignment(self, number: int, assignment: Any, are_stable: Callable[[list[Any]], bool]) -> None:
        """Record the assignment of a member. The group is stable when all members have one and they fit together."""
        self.assignments[number] = assignment
        if len(self.assignments) == self.members and are_stable(list(self.assignments.values())):
            self._is_stable.set()

    def wait_for_heartbeat(self) -> bool:
        """Wait for the heartbeat interval. Return False if the group is stable."""
        return not self._is_stable.wait(HEARTBEAT_S)


Member = Callable[[Group, int, socket.socket], None]
"""The behaviour of a member, with its number and its connection."""


def retry_until_ready(send: Callable[[], int]) -> int:
    """Call `send` until its error code does not mean that the coordinator is not ready. Return that code."""
    deadline = time.monotonic() + TIMEOUT_S
    while (code := send()) in _NOT_READY:
        if time.monotonic() > deadline:
            raise ToolFailed(f"the coordinator is not ready after {TIMEOUT_S:g} s: error {code}")
        time.sleep(0.05)
    return code


def classic_member(group: Group, number: int, connection: socket.socket) -> None:
    """Join, and rejoin when the group rebalances. The assignment has no meaning, because no member reads it."""
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
        assignments = [
            SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"mine") for member in joined.members
        ]
        sync = SyncGroupRequest(
            group_id=group.name, generation_id=generation, member_id=member_id, assignments=assignments
        )
        synced = send_request(connection, sync, 3)
        if synced.error_code == _REBALANCE_IN_PROGRESS:
            continue
        _check(synced.error_code, "SyncGroup")
        group.record_assignment(number, generation, lambda generations: len(set(generations)) == 1)
        heartbeat = HeartbeatRequest(group_id=group.name, generation_id=generation, member_id=member_id)
        while (code := send_request(connection, heartbeat, 3).error_code) == 0:
            if not group.wait_for_heartbeat():
                _check(
                    send_request(connection, LeaveGroupRequest(group_id=group.name, member_id=member_id), 2).error_code,
                    "",
                )
                return
        if code != _REBALANCE_IN_PROGRESS:
            _check(code, "Heartbeat")


def consumer_member(topic: str) -> Member:
    """Return a member of the consumer protocol (KIP-848), which accepts and revokes partitions at once."""

    def run(group: Group, number: int, connection: socket.socket) -> None:
        member_id, epoch = str(uuid4()), 0
        owned: list[TopicPartitions] | None = []
        while True:
            heartbeat = ConsumerGroupHeartbeatRequest(
                group_id=group.name,
                member_id=member_id,
                member_epoch=epoch,
                rebalance_timeout_ms=_SESSION_MS if epoch == 0 else -1,
                subscribed_topic_names=[topic] if epoch == 0 else None,
                topic_partitions=owned,
            )
            answer = send_request(connection, heartbeat, 1)
            _check(answer.error_code, "ConsumerGroupHeartbeat")
            epoch = answer.member_epoch
            if answer.assignment is None:
                owned = None
            else:
                owned = answer.assignment.topic_partitions
                partitions = frozenset(index for topic in owned for index in topic.partitions)
                group.record_assignment(number, partitions, _is_one_each)
                continue  # report the owned partitions at once
            if not group.wait_for_heartbeat():
                leave = ConsumerGroupHeartbeatRequest(group_id=group.name, member_id=member_id, member_epoch=_LEAVE)
                _check(send_request(connection, leave, 1).error_code, "ConsumerGroupHeartbeat")
                return

    return run


def _is_one_each(assignments: list[frozenset[int]]) -> bool:
    """Whether each member has one partition that no other member has."""
    all_partitions = frozenset().union(*assignments)
    return all(len(partitions) == 1 for partitions in assignments) and len(all_partitions) == len(assignments)


def _check(code: int, request: str) -> None:
    if code:
        raise ToolFailed(f"{request} got error {code}")
