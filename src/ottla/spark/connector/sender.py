"""Delivers batches to the leaders of their partitions: one request in flight per node, one batch per partition.

A retried batch has the same bytes and the same sequence number, and is sent before all later batches. So a broker
recognizes a duplicate, and records stay in order whatever fails.
"""

import time
from collections import deque
from typing import Final

from ottla.client.metadata import TopicPartition, nodes_by_id, partition_label
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
"""The last version that requires AddPartitionsToTxn before a transaction writes to a partition."""
_QUEUED_BYTES: Final = 16 << 20


class Sender:
    """Delivers batches for one task."""

    def __init__(
        self,
        cluster: BlockingCluster,
        settings: ClientSettings,
        identity: ProducerIdentity | None,
        transactional_id: str | None = None,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._identity = identity
        self._transactional_id = transactional_id
        self._queues: dict[TopicPartition, deque[bytearray]] = {}
        self._queued_bytes = 0
        self._sequences: dict[TopicPartition, int] = {}
        self._in_flight: dict[int, tuple[BrokerConnection, list[TopicPartition]]] = {}
        self._failing_until: Deadline | None = None
        self._attempts = 0

    def put(self, key: TopicPartition, payload: bytes | memoryview, count: int) -> None:
        """Queue the records of a batch; return when there is room for more."""
        batch = self._seal(key, payload, count)
        self._queues.setdefault(key, deque()).append(batch)
        self._queued_bytes += len(batch)
        self._send_idle()
        while self._queued_bytes > _QUEUED_BYTES:
            self._advance()

    def flush(self) -> None:
        """Return when every batch is delivered; raise a permanent error."""
        while self._queued_bytes:
            self._advance()

    def close(self) -> None:
        for connection, _ in self._in_flight.values():
            connection.close()
        self._in_flight.clear()

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
        """Process one response, or wait for the backoff if no request is in flight."""
        self._send_idle()
        if self._in_flight:
            self._process_response(next(iter(self._in_flight)))
        else:
            time.sleep(backoff_s(self._attempts))

    def _send_idle(self) -> None:
        """Send the first batches of their partitions to the nodes without a request in flight."""
        ready: dict[int, list[TopicPartition]] = {}
        sizes: dict[int, int] = {}
        for key, queue in self._queues.items():
            if not queue:
                continue
            try:
                node = self._cluster.leader_of(key).leader
            except ApiError as error:
                self._retry_later([key], error)
                continue
            size = sizes.get(node, 0) + len(queue[0])
            if node in self._in_flight or (node in ready and size > self._settings.max_request_bytes):
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
            # acks=0 is sent as 1, because a write that loses rows silently is of no use to a query.
            acks=self._settings.acks or 1,
            timeout_ms=int(self._settings.request_timeout_s * 1000),
            topic_data=list(topics.values()),
        )
        try:
            connection = self._cluster.borrow_connection(node)
            connection.send(request, connection.version_of(ApiKey.PRODUCE, at_most=_VERSION))
        except ApiError as error:
            self._retry_later(keys, error)
            return
        self._in_flight[node] = connection, keys

    def _process_response(self, node: int) -> None:
        connection, keys = self._in_flight.pop(node)
        try:
            answer: ProduceResponse = connection.receive(self._settings.request_timeout_s)
        except ApiError as error:
            connection.close()
            self._retry_later(keys, error)
            return
        self._cluster.return_connection(node, connection)
        nodes = nodes_by_id(answer.node_endpoints)
        unanswered = set(keys)
        for topic in answer.responses:
            for result in topic.partition_responses:
                key = topic.name, result.index
                unanswered.discard(key)
                if result.error_code in (0, DuplicateSequenceNumber.code):
                    self._queued_bytes -= len(self._queues[key].popleft())
                    self._failing_until, self._attempts = None, 0
                    continue
                if (hint := result.current_leader) is not None:
                    self._cluster.async_cluster.note_leader(*key, hint.leader_id, hint.leader_epoch, nodes)
                self._retry_later([key], _error(result, topic.name, connection.address))
        if unanswered:
            missing = partition_label(*min(unanswered))
            self._retry_later(list(unanswered), NetworkFailed(f"the response of {connection.address} lacks {missing}"))

    def _retry_later(self, keys: list[TopicPartition], error: ApiError) -> None:
        """Wait for the backoff; raise the error if it is permanent or the delivery timeout has passed."""
        key = keys[0]
        if self._failing_until is None:
            self._failing_until = Deadline(self._settings.delivery_timeout_s)
        # The partition existed a moment ago: fresh metadata shows whether it was deleted or only moved.
        stale = isinstance(error, UnknownTopicOrPartition) and self._attempts < 3
        if not (stale or is_transient(error)) or self._failing_until.has_passed:
            raise add_location(error, partition_label(*key))
        for name, _ in keys:
            self._cluster.async_cluster.forget(name)
        self._attempts += 1
        time.sleep(backoff_s(self._attempts))


def _error(answer: PartitionProduceResponse, topic: str, address: str) -> ApiError:
    message = answer.error_message
    if answer.record_errors and (first := answer.record_errors[0].batch_index_error_message):
        message = f"record {answer.record_errors[0].batch_index} of the batch: {first}"
    return error_from_code(answer.error_code, message, f"{partition_label(topic, answer.index)} at {address}")
