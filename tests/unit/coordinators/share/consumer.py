"""A share group member for tests: it reads and accepts its records, whatever happens to brokers."""

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from ottla.client.cluster import Cluster
from ottla.protocol.errors import ApiError
from ottla.protocol.messages.rpc.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.rpc.share_fetch import AcknowledgementBatch, FetchPartition, FetchTopic, ShareFetchRequest
from ottla.protocol.messages.rpc.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.wire.batch import read_batches
from ottla.protocol.wire.records import read_records

Where = tuple[int, int]
"""A partition and an offset."""
_PAUSE_S = 0.1


class ShareConsumer:
    """Delivers each record to a function, then accepts it; `accepted` is called when a broker has confirmed that."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        topic: str,
        *,
        delivered: Callable[[Where, bytes], None],
        accepted: Callable[[Where], None],
    ) -> None:
        self._cluster = cluster
        self._group = group
        self._topic = topic
        self._delivered = delivered
        self._accepted = accepted
        self._member = str(uuid4())
        self._epoch = 0
        self._assigned: list[int] = []
        self._sessions: dict[int, int] = {}
        self._acks: dict[int, list[tuple[int, int]]] = {}
        """The delivered records to accept with the next fetch, by partition."""

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Read until the condition holds."""
        while not is_over():
            try:
                await self._beat()
                topic = await self._cluster.topic(self._topic)
                by_leader: dict[int, list[int]] = {}
                for number in self._assigned:
                    by_leader.setdefault(topic.partitions[number].leader, []).append(number)
                for leader, numbers in by_leader.items():
                    await self._fetch(leader, topic.id, numbers)
                if not by_leader:
                    await asyncio.sleep(_PAUSE_S)
            except ApiError:  # a broker is gone, or has just come
                self._cluster.forget(self._topic)
                self._sessions.clear()
                self._acks.clear()
                await asyncio.sleep(_PAUSE_S)

    async def _beat(self) -> None:
        found = await self._cluster.send(FindCoordinatorRequest(coordinator_keys=[self._group]), version=6)
        node = found.coordinators[0].node_id
        if found.coordinators[0].error_code:
            return
        answer = await self._cluster.send(
            ShareGroupHeartbeatRequest(
                group_id=self._group,
                member_id=self._member,
                member_epoch=self._epoch,
                subscribed_topic_names=[self._topic],
            ),
            node=node,
        )
        if answer.error_code:
            self._epoch = 0
        else:
            self._epoch = answer.member_epoch
            self._assigned = [number for each in answer.assignment.topic_partitions for number in each.partitions]

    async def _fetch(self, leader: int, topic_id: bytes, numbers: list[int]) -> None:
        epoch = self._sessions.get(leader, 0)
        acks = {number: self._acks.pop(number, []) for number in numbers} if epoch else {}
        request = ShareFetchRequest(
            group_id=self._group,
            member_id=self._member,
            share_session_epoch=epoch,
            max_wait_ms=200,
            min_bytes=1,
            max_records=20,
            batch_size=10,
            topics=[
                FetchTopic(topic_id=topic_id, partitions=[_part(number, acks.get(number, [])) for number in numbers])
            ],
        )
        answer = await self._cluster.send(request, node=leader, lane="share")
        if answer.error_code:
            self._sessions[leader] = 0
            return
        self._sessions[leader] = epoch + 1
        for each in answer.responses:
            for part in each.partitions:
                self._take(part, acks.get(part.partition_index, []))

    def _take(self, part: Any, acks: list[tuple[int, int]]) -> None:
        number = part.partition_index
        if part.error_code:
            self._cluster.forget(self._topic)
        if not part.acknowledge_error_code:
            for first, last in acks:
                for offset in range(first, last + 1):
                    self._accepted((number, offset))
        values = {
            record.offset: record.value or b""
            for pos, header in read_batches(part.records, partial_tail=True)
            for record in read_records(part.records, pos, header)
        }
        for run in part.acquired_records:
            for offset in range(run.first_offset, run.last_offset + 1):
                self._delivered((number, offset), bytes(values[offset]))
            self._acks.setdefault(number, []).append((run.first_offset, run.last_offset))


def _part(number: int, acks: list[tuple[int, int]]) -> FetchPartition:
    return FetchPartition(
        partition_index=number,
        acknowledgement_batches=[
            AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[1]) for first, last in acks
        ],
    )
