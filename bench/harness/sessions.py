"""Consumers without a client library that use fetch sessions: a fetch names only the partitions whose offset changed.

librdkafka fetches without sessions, and Java's consumer iterates over all its partitions for each fetch. With thousands
of partitions, both take longer than the server. These consumers take the same time for any number of partitions, so
that a growing latency is the server's.
"""

import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any, Protocol
from uuid import uuid4

from bench.harness.members import Group, retry_until_ready
from bench.harness.node_requests import send_request
from bench.harness.tools import ToolFailed
from ottla.protocol.errors import NotLeader, UnknownTopicOrPartition
from ottla.protocol.messages.rpc.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.rpc.share_fetch import AcknowledgementBatch, ShareFetchRequest
from ottla.protocol.messages.rpc.share_fetch import FetchPartition as SharePartition
from ottla.protocol.messages.rpc.share_fetch import FetchTopic as ShareTopic
from ottla.protocol.messages.rpc.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.wire.batch import read_batches
from ottla.protocol.wire.records import read_records

TIMEOUT_S = 120.0
WAIT_MS = 500
ANSWER_BYTES = 1 << 20
_FETCH_VERSION, _SHARE_FETCH_VERSION, _HEARTBEAT_VERSION = 12, 1, 1
_HEARTBEAT_S = 3.0
_ACCEPT = 1
_LEAVE = -1
_NOT_READY = frozenset({UnknownTopicOrPartition.code, NotLeader.code})
"""Errors of a partition whose leader is not ready yet; the next fetch includes it again."""
_MAX_RECORDS = 500


class Reader(Protocol):
    """A consumer or a share consumer."""

    def fetch(self) -> list[bytes]:
        """Fetch once and return the values of the records; empty if none arrive within the wait time."""
        ...

    def close(self) -> None:
        """Leave the group, if any, and close the connection."""
        ...


class SessionConsumer:
    """A consumer that is assigned all partitions of some topics and reads them from the beginning."""

    def __init__(self, port: int, topics: Mapping[str, int]) -> None:
        self._connection = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self._session_id = self._epoch = 0
        self._offsets = {(topic, number): 0 for topic, count in topics.items() for number in range(count)}
        self._moved = set(self._offsets)

    def fetch(self) -> list[bytes]:
        topics: dict[str, FetchTopic] = {}
        for topic, number in self._moved:
            part = FetchPartition(
                partition=number, fetch_offset=self._offsets[topic, number], partition_max_bytes=ANSWER_BYTES
            )
            topics.setdefault(topic, FetchTopic(topic=topic)).partitions.append(part)
        self._moved.clear()
        request = FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=list(topics.values()),
        )
        answer = send_request(self._connection, request, _FETCH_VERSION)
        _check(answer.error_code, "Fetch")
        if answer.session_id == 0:
            raise ToolFailed("the node created no fetch session")
        self._session_id, self._epoch = answer.session_id, self._epoch + 1
        values = []
        for topic in answer.responses:
            for part in topic.partitions:
                if part.error_code in _NOT_READY:
                    self._moved.add((topic.topic, part.partition_index))
                    continue
                _check(part.error_code, f"Fetch of {topic.topic}-{part.partition_index}")
                for last_offset, value in _values(part.records):
                    values.append(value)
                    self._offsets[topic.topic, part.partition_index] = last_offset + 1
                    self._moved.add((topic.topic, part.partition_index))
        return values

    def close(self) -> None:
        self._connection.close()


class ShareConsumer:
    """The only member of a share group. It accepts all records with its next fetch."""

    def __init__(self, port: int, group: str, topics: Mapping[str, int]) -> None:
        self._connection = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self._group, self._member = group, str(uuid4())
        self._member_epoch = self._session_epoch = 0
        self._topics = list(topics)
        self._assigned: set[tuple[bytes, int]] = set()
        self._new: set[tuple[bytes, int]] = set()
        """Partitions that the share session does not contain yet."""
        self._accepted: dict[tuple[bytes, int], list[AcknowledgementBatch]] = {}
        Group(port, group, 0).find_coordinator()
        _check(retry_until_ready(self._heartbeat), "ShareGroupHeartbeat")
        self._wait_for(sum(topics.values()))

    def fetch(self) -> list[bytes]:
        if time.monotonic() >= self._next_heartbeat:
            _check(self._heartbeat(), "ShareGroupHeartbeat")
        topics: dict[bytes, ShareTopic] = {}
        for topic_id, number in self._new | self._accepted.keys():
            part = SharePartition(
                partition_index=number, acknowledgement_batches=self._accepted.get((topic_id, number), [])
            )
            topics.setdefault(topic_id, ShareTopic(topic_id=topic_id)).partitions.append(part)
        self._new.clear()
        self._accepted.clear()
        request = ShareFetchRequest(
            group_id=self._group,
            member_id=self._member,
            share_session_epoch=self._session_epoch,
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_records=_MAX_RECORDS,
            batch_size=_MAX_RECORDS,
            topics=list(topics.values()),
        )
        answer = send_request(self._connection, request, _SHARE_FETCH_VERSION)
        _check(answer.error_code, "ShareFetch")
        self._session_epoch += 1
        return [value for topic in answer.responses for part in topic.partitions for value in self._take(topic, part)]

    def close(self) -> None:
        leave = ShareGroupHeartbeatRequest(group_id=self._group, member_id=self._member, member_epoch=_LEAVE)
        send_request(self._connection, leave, _HEARTBEAT_VERSION)
        self._connection.close()

    def _take(self, topic: Any, part: Any) -> Iterator[bytes]:
        _check(part.error_code or part.acknowledge_error_code, f"ShareFetch of partition {part.partition_index}")
        if not part.acquired_records:
            return
        self._accepted[topic.topic_id, part.partition_index] = [
            AcknowledgementBatch(
                first_offset=batch.first_offset, last_offset=batch.last_offset, acknowledge_types=[_ACCEPT]
            )
            for batch in part.acquired_records
        ]
        for offset, value in _values(part.records):
            if any(batch.first_offset <= offset <= batch.last_offset for batch in part.acquired_records):
                yield value

    def _heartbeat(self) -> int:
        heartbeat = ShareGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._member,
            member_epoch=self._member_epoch,
            subscribed_topic_names=self._topics if self._member_epoch == 0 else None,
        )
        answer = send_request(self._connection, heartbeat, _HEARTBEAT_VERSION)
        self._next_heartbeat = time.monotonic() + _HEARTBEAT_S
        if answer.error_code:
            return int(answer.error_code)
        self._member_epoch = answer.member_epoch
        if answer.assignment is not None:
            assigned = {(topic.topic_id, n) for topic in answer.assignment.topic_partitions for n in topic.partitions}
            self._new |= assigned - self._assigned
            self._assigned = assigned
        return 0

    def _wait_for(self, partitions: int) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while len(self._assigned) < partitions:
            if time.monotonic() > deadline:
                raise ToolFailed(f"{self._group} was assigned {len(self._assigned)} of {partitions} partitions")
            time.sleep(0.2)
            _check(self._heartbeat(), "ShareGroupHeartbeat")


def _values(data: Any) -> Iterator[tuple[int, bytes]]:
    for position, header in read_batches(data or b"", partial_tail=True):
        for record in read_records(data, position, header):
            yield record.offset, record.value or b""


def _check(code: int, request: str) -> None:
    if code:
        raise ToolFailed(f"{request} got error {code}")
