"""Batches on their way to the leaders of their partitions: one request under way a node, one batch a partition.

A batch that is sent again is the same bytes with the same sequence, and goes before all later ones: a broker that has
it already recognizes it, and records stay in order whatever fails.
"""

import time
from collections import deque
from typing import Final

from ottla.client.metadata import TopicPartition, endpoints_of, partition_label
from ottla.client.producer_batches import ProducerIdentity
from ottla.client.retries import Deadline, add_location, backoff_s, error_from_code, is_transient
from ottla.protocol.errors import ApiError, DuplicateSequenceNumber, NetworkFailed, UnknownTopicOrPartition
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.protocol.wire.batch import (
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAX_INT32,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    assign_crc,
)
from ottla.protocol.wire.compression import compress
from ottla.spark.connector.broker_connection import BrokerConnection
from ottla.spark.connector.client_settings import ClientSettings
from ottla.spark.connector.cluster import BlockingCluster

_VERSION: Final = 11
"""The last version in which a transaction's partitions are made known by a request of their own."""
_QUEUED_BYTES: Final = 16 << 20


class Sender:
    """Delivers batches for one task."""

    def __init__(
        self,
        access: BlockingCluster,
        settings: ClientSettings,
        identity: ProducerIdentity | None,
        transactional_id: str | None = None,
    ) -> None:
        self._access = access
        self._settings = settings
        self._identity = identity
        self._transactional_id = transactional_id
        self._queues: dict[TopicPartition, deque[bytearray]] = {}
        self._queued_bytes = 0
        self._sequences: dict[TopicPartition, int] = {}
        self._under_way: dict[int, tuple[BrokerConnection, list[TopicPartition]]] = {}
        self._failing_until: Deadline | None = None
        self._attempts = 0

    def put(self, key: TopicPartition, payload: bytes | memoryview, count: int) -> None:
        """Take a batch's records; returns when there is room for more."""
        batch = self._seal(key, payload, count)
        self._queues.setdefault(key, deque()).append(batch)
        self._queued_bytes += len(batch)
        self._send_idle()
        while self._queued_bytes > _QUEUED_BYTES:
            self._advance()

    def flush(self) -> None:
        """Return when every batch was delivered; raises what is not going to pass."""
        while self._queued_bytes:
            self._advance()

    def close(self) -> None:
        for link, _ in self._under_way.values():
            link.close()
        self._under_way.clear()

    def _seal(self, key: TopicPartition, payload: bytes | memoryview, count: int) -> bytearray:
        now_ms = time.time_ns() // 1_000_000
        producer_id, epoch = self._identity or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        sequence = NO_SEQUENCE
        if self._identity is not None:
            sequence = self._sequences.get(key, 0)
            self._sequences[key] = (sequence + count) & MAX_INT32
        codec = self._settings.compression
        attributes = codec | (TRANSACTIONAL_BIT if self._transactional_id else 0)
        batch = bytearray(HEADER_BYTES)
        batch += compress(codec, payload, self._settings.compression_level) if codec else payload
        HEADER.pack_into(
            batch, 0, 0, len(batch) - LENGTH_PREFIX_BYTES, NO_LEADER_EPOCH, 2, 0, attributes, count - 1,
            now_ms, now_ms, producer_id, epoch, sequence, count,
        )  # fmt: skip
        assign_crc(batch, 0, len(batch))
        return batch

    def _advance(self) -> None:
        """Take one answer; or wait a little, where nothing can be sent."""
        self._send_idle()
        if self._under_way:
            self._settle(next(iter(self._under_way)))
        else:
            time.sleep(backoff_s(self._attempts))

    def _send_idle(self) -> None:
        """Give each node that has no request under way the first batches of its partitions."""
        ready: dict[int, list[TopicPartition]] = {}
        sizes: dict[int, int] = {}
        for key, queue in self._queues.items():
            if not queue:
                continue
            try:
                node = self._access.leader_of(key).leader
            except ApiError as error:
                self._put_off([key], error)
                continue
            size = sizes.get(node, 0) + len(queue[0])
            if node in self._under_way or (node in ready and size > self._settings.max_request_bytes):
                continue
            sizes[node] = size
            ready.setdefault(node, []).append(key)
        for node, keys in ready.items():
            self._send(node, keys)

    def _send(self, node: int, keys: list[TopicPartition]) -> None:
        topics: dict[str, TopicProduceData] = {}
        for name, partition in keys:
            data = PartitionProduceData(index=partition, records=self._queues[name, partition][0])
            topics.setdefault(name, TopicProduceData(name=name)).partition_data.append(data)
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            # Rows that are lost unnoticed help nobody: acks=0 is sent as 1.
            acks=self._settings.acks or 1,
            timeout_ms=int(self._settings.request_timeout_s * 1000),
            topic_data=list(topics.values()),
        )
        try:
            link = self._access.borrow_link(node)
            link.send(request, link.version_of(ApiKey.PRODUCE, at_most=_VERSION))
        except ApiError as error:
            self._put_off(keys, error)
            return
        self._under_way[node] = link, keys

    def _settle(self, node: int) -> None:
        link, keys = self._under_way.pop(node)
        try:
            answer: ProduceResponse = link.take(self._settings.request_timeout_s)
        except ApiError as error:
            link.close()
            self._put_off(keys, error)
            return
        self._access.return_link(node, link)
        nodes = endpoints_of(answer.node_endpoints)
        left = set(keys)
        for topic in answer.responses:
            for each in topic.partition_responses:
                key = topic.name, each.index
                left.discard(key)
                if each.error_code in (0, DuplicateSequenceNumber.code):
                    self._queued_bytes -= len(self._queues[key].popleft())
                    self._failing_until, self._attempts = None, 0
                    continue
                if (hint := each.current_leader) is not None:
                    self._access.cluster.note_leader(*key, hint.leader_id, hint.leader_epoch, nodes)
                self._put_off([key], _error(each, topic.name, link.address))
        if left:
            self._put_off(
                list(left), NetworkFailed(f"{link.address} left out {partition_label(*min(left))} from its answer")
            )

    def _put_off(self, keys: list[TopicPartition], error: ApiError) -> None:
        """Try again a little later, unless the error is going to stay."""
        key = keys[0]
        if self._failing_until is None:
            self._failing_until = Deadline(self._settings.delivery_timeout_s)
        # A partition that was known a moment ago: the next look at the metadata tells whether it is gone.
        stale = isinstance(error, UnknownTopicOrPartition) and self._attempts < 3
        if not (stale or is_transient(error)) or self._failing_until.has_passed:
            raise add_location(error, partition_label(*key))
        for name, _ in keys:
            self._access.cluster.forget(name)
        self._attempts += 1
        time.sleep(backoff_s(self._attempts))


def _error(answer: PartitionProduceResponse, topic: str, address: str) -> ApiError:
    said = answer.error_message
    if answer.record_errors and (first := answer.record_errors[0].batch_index_error_message):
        said = f"record {answer.record_errors[0].batch_index} of the batch: {first}"
    return error_from_code(answer.error_code, said, f"{partition_label(topic, answer.index)} at {address}")
