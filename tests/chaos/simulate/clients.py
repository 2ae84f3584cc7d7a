"""Clients of a simulated cluster: an idempotent and a transactional producer that record the responses."""

import asyncio
from collections import defaultdict
from random import Random
from typing import Any, Final

from ottla.client.connection import Connection
from ottla.protocol.errors import NONE, ApiError, ConcurrentTransactions, LeaderNotAvailable, by_code
from ottla.protocol.messages.rpc.end_txn import EndTxnRequest
from ottla.protocol.messages.rpc.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.rpc.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.rpc.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.rpc.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.wire.records import Record, build_batch
from tests.chaos.simulate.machine import BROKER_PORT

_TIMEOUT_S: Final = 1.5
_TRANSACTIONS: Final = 1


class _Client:
    """Connections to brokers, and the leader epochs that the client knows."""

    def __init__(self, brokers: list[int], random: Random) -> None:
        self._brokers, self._random = brokers, random
        self._connections: dict[int, Connection] = {}
        self._epochs: dict[int, int] = defaultdict(int)
        """Partition → the highest leader epoch that the client has seen."""
        self.is_stopped = False

    async def send(self, broker: int, request: Any) -> Any:
        connection = self._connections.get(broker)
        try:
            if connection is None or not connection.is_open:
                connection = await Connection.connect(f"node{broker}", BROKER_PORT, timeout_s=_TIMEOUT_S)
                self._connections[broker] = connection
            return await connection.send(request, timeout_s=_TIMEOUT_S)
        except ApiError:
            if (broken := self._connections.pop(broker, None)) is not None:
                broken.close()
            raise

    async def send_to_any(self, request: Any) -> Any:
        return await self.send(self._random.choice(self._brokers), request)

    async def find_leader(self, name: str, partition: int) -> tuple[bytes, int]:
        """Return the topic id and the leader from any broker. As clients do, ignore leaders of earlier epochs."""
        answer = await self.send_to_any(MetadataRequest(topics=[MetadataRequestTopic(name=name)]))
        (topic,) = answer.topics
        if topic.error_code:
            raise by_code(topic.error_code)()
        metadata = next(candidate for candidate in topic.partitions if candidate.partition_index == partition)
        if metadata.leader_id < 0 or metadata.leader_epoch < self._epochs[partition]:
            raise LeaderNotAvailable
        self._epochs[partition] = metadata.leader_epoch
        return topic.topic_id, metadata.leader_id

    async def pause(self) -> None:
        await asyncio.sleep(self._random.random() / 8)


class Writer(_Client):
    """An idempotent producer with acks=all that sends one record at a time and retries until it is acknowledged."""

    def __init__(self, brokers: list[int], random: Random, topic: str, partition: int) -> None:
        super().__init__(brokers, random)
        self._topic, self.partition = topic, partition
        self.acknowledged: dict[int, int] = {}
        """Number of the record → its offset."""
        self.unexpected_errors: list[str] = []
        self.producer_id = -1

    async def run(self) -> None:
        while self.producer_id < 0:
            try:
                answer = await self.send_to_any(InitProducerIdRequest(transactional_id=None))
                self.producer_id = answer.producer_id
            except ApiError:
                await self.pause()
        number = 0
        while not self.is_stopped:
            record = Record(0, 0, None, b"%d" % number + b"." * self._random.randrange(200))
            while (offset := await self._try(record, number)) < 0:
                await self.pause()
            self.acknowledged[number] = offset
            number += 1
            await asyncio.sleep(self._random.random() / 8)

    async def _try(self, record: Record, number: int) -> int:
        """Send the record once. Return its offset, or -1 if it was not acknowledged."""
        data = build_batch([record], producer_id=self.producer_id, producer_epoch=0, base_sequence=number)
        try:
            topic_id, leader = await self.find_leader(self._topic, self.partition)
            answer = await self.send(leader, _produce(topic_id, {self.partition: bytes(data)}))
        except ApiError:
            return -1
        (part,) = answer.responses[0].partition_responses
        if part.error_code and not by_code(part.error_code).retriable:
            self.unexpected_errors.append(by_code(part.error_code).__name__)
        return -1 if part.error_code else int(part.base_offset)


class TransactionalWriter(_Client):
    """Writes a record to each partition in each transaction (transaction.version 2), and commits or aborts."""

    def __init__(self, brokers: list[int], random: Random, topic: str, partitions: int, name: str) -> None:
        super().__init__(brokers, random)
        self._topic, self._partitions, self.name = topic, partitions, name
        self._id, self._epoch = -1, -1
        self.outcomes: dict[str, str] = {}
        """Transaction → commit, abort, or unknown if it may be either."""
        self._sequences: dict[int, int] = defaultdict(int)

    async def run(self) -> None:
        number = 0
        while not self.is_stopped:
            if self._id < 0 and not await self._initialize():
                await self.pause()
                continue
            number += 1
            name = f"{self.name}/{number}"
            self.outcomes[name] = "abort"
            if await self._write(name):
                commit = self._random.random() < 0.7
                self.outcomes[name] = "unknown" if commit else "abort"
                ended = await self._end(commit)
                if ended and commit:
                    self.outcomes[name] = "commit"
            else:
                self._id = -1  # the next InitProducerId aborts the open transaction
            await self.pause()
        while not await self._initialize():
            await self.pause()

    async def _initialize(self) -> bool:
        try:
            coordinator = await self._find_coordinator()
            request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=5_000)
            answer = await self.send(coordinator, request)
        except ApiError:
            return False
        if answer.error_code:
            return False
        self._id, self._epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()
        return True

    async def _find_coordinator(self) -> int:
        request = FindCoordinatorRequest(key_type=_TRANSACTIONS, coordinator_keys=[self.name])
        (coordinator,) = (await self.send_to_any(request)).coordinators
        if coordinator.error_code:
            raise by_code(coordinator.error_code)()
        return int(coordinator.node_id)

    async def _write(self, name: str) -> bool:
        """Write a record to each partition. Return whether all of them were acknowledged."""
        acknowledged = [await self._write_to(part, f"{name}/{part}") for part in range(self._partitions)]
        return all(acknowledged)

    async def _write_to(self, partition: int, value: str) -> bool:
        record = Record(0, 0, None, value.encode())
        data = build_batch(
            [record],
            producer_id=self._id,
            producer_epoch=self._epoch,
            base_sequence=self._sequences[partition],
            transactional=True,
        )
        for _ in range(20):
            try:
                topic_id, leader = await self.find_leader(self._topic, partition)
                answer = await self.send(leader, _produce(topic_id, {partition: bytes(data)}, self.name))
            except ApiError:
                await self.pause()
                continue
            code = answer.responses[0].partition_responses[0].error_code
            if code == NONE:
                self._sequences[partition] += 1
                return True
            if not by_code(code).retriable:
                return False
            await self.pause()
        return False

    async def _end(self, commit: bool) -> bool:
        """End the transaction. Return whether the coordinator confirmed it; otherwise, its outcome is unknown."""
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=self._id, producer_epoch=self._epoch, committed=commit
        )
        for _ in range(60):
            try:
                answer = await self.send(await self._find_coordinator(), request)
            except ApiError:
                await self.pause()
                continue
            if answer.error_code == NONE:
                if (answer.producer_id, answer.producer_epoch) != (self._id, self._epoch):
                    self._id, self._epoch = answer.producer_id, answer.producer_epoch
                    self._sequences.clear()
                return True
            error = by_code(answer.error_code)
            if not error.retriable and error is not ConcurrentTransactions:
                break
            await self.pause()
        self._id = -1
        return False


def _produce(topic_id: bytes, parts: dict[int, bytes], transactional_id: str | None = None) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=records) for index, records in parts.items()]
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=1_000,
        topic_data=[TopicProduceData(topic_id=topic_id, partition_data=data)],
    )
