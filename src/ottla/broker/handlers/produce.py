"""Produce (key 0): append batches, and answer when the replicas that `acks` requires have them.

acks=0 expects no answer: a failure closes the connection, so that the producer looks for the leader again. acks=1 is
answered at once. acks=all waits until all in-sync replicas have the batch; a partition that is not replicated before
the timeout is answered with REQUEST_TIMED_OUT.

A batch that takes long to validate, because it is large and has to be compressed or decompressed, is validated in a
thread first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Mapping

from ottla.broker.authorization.data_guards import guard_produce, has_transactional_records
from ottla.broker.handlers.leader_hints import endpoints_of, leader_of
from ottla.broker.handlers.verification import Verification, completed_verification, verification_of
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import LATER, NOTHING, Call, CloseConnection, Later, Nothing
from ottla.broker.requests.endpoint import endpoint
from ottla.protocol.errors import (
    NONE,
    ApiError,
    CorruptMessage,
    InvalidRecord,
    InvalidRequiredAcks,
    MessageTooLarge,
    NotLeader,
    RecordError,
    RecordListTooLarge,
    RequestTimedOut,
    StorageFailed,
    TransactionalIdAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnsupportedCompressionType,
)
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.protocol.wire.batch import (
    ATTRIBUTES_LOW_BYTE,
    COMPRESSION_MASK,
    HEADER_BYTES,
    LENGTH_OFFSET,
    LENGTH_PREFIX_BYTES,
    MAGIC_OFFSET,
    MAX_INT64,
    TRANSACTIONAL_BIT,
    read_length,
)
from ottla.protocol.wire.compression import Compression
from ottla.protocol.wire.summary import survey
from ottla.replication.partition import Partition
from ottla.replication.partitions import Partitions
from ottla.replication.purgatory import Operation, complete_or_wait
from ottla.storage.log.producers import Origin
from ottla.storage.log.validation import Data, TooHeavy, validate_batch

ALL = -1
_ACKS = (0, 1, ALL)
_FIRST_WITH_ZSTD = 7
_FIRST_WITH_IDS = 13
"""Requests name topics by id instead of by name."""
_MIN_BATCH_LENGTH = 14
"""The length of the shortest batch in any format."""
ERRORS_WITHOUT_LOG_START = (
    UnknownTopicOrPartition,
    UnknownTopicId,
    NotLeader,
    MessageTooLarge,
    RecordListTooLarge,
    CorruptMessage,
    StorageFailed,
)
_TIMED_OUT = RequestTimedOut.code
_NO_PARTITIONS: Mapping[int, Partition] = {}
_Accepted = Data | ApiError
"""The result of validating a batch in a thread: the batch as it is stored, or an error."""


def produce_failed(request: ProduceRequest, version: int, error: ApiError) -> ProduceResponse | None:
    """Return the error for every partition; None if the producer expects no answer."""
    if request.acks == 0:
        return None
    topics: dict[tuple[str, bytes], TopicProduceResponse] = {}
    for topic in request.topic_data:
        answer = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
        answer = topics.setdefault((topic.name, topic.topic_id), answer)
        answer.partition_responses += [_failed(part.index, error) for part in topic.partition_data]
    return ProduceResponse(responses=list(topics.values()))


@endpoint(ApiKey.PRODUCE, failed=produce_failed, guard=guard_produce)
def produce(
    call: Call[BrokerNode], request: ProduceRequest
) -> ProduceResponse | Later | Nothing | Awaitable[ProduceResponse | Later | Nothing]:
    """Append the batches of the request."""
    seen = _survey(request)
    appending = _Appending(call, request, is_regular=seen is not None and call.version >= _FIRST_WITH_ZSTD)
    if request.transactional_id is not None:
        verification = appending.verification = verification_of(call, request)
        if verification is not None and not verification.is_done:
            appending.keep_bytes()
            return _when_verified(appending, verification)
    elif has_transactional_records(request) if seen is None else seen & TRANSACTIONAL_BIT:
        # No client may write such records.
        raise TransactionalIdAuthorizationFailed("records of a transaction without a transactional id")
    return appending.run()


async def _when_verified(appending: _Appending, verification: Verification) -> ProduceResponse | Later | Nothing:
    """Append once the transaction coordinator has answered. The connection waits meanwhile, which keeps the order."""
    await verification.wait()
    outcome = appending.run()
    return await outcome if isinstance(outcome, Awaitable) else outcome


class _Appending:
    """Appends the batches of one request in order, and collects the answer."""

    __slots__ = ("_call", "_failed", "_is_regular", "_request", "_response", "_waiting", "verification")

    def __init__(self, call: Call[BrokerNode], request: ProduceRequest, *, is_regular: bool) -> None:
        self._call = call
        self._request = request
        self._is_regular = is_regular
        """Whether every partition has one batch, in a supported format."""
        self._response = ProduceResponse()
        self._waiting: list[_Pending] | None = None
        self._failed: ApiError | None = None
        self.verification: Verification | None = None
        """The answer of the transaction coordinator; None if it need not be asked."""

    def run(self) -> ProduceResponse | Later | Nothing | Awaitable[ProduceResponse | Later | Nothing]:
        """Append everything. From the first heavy batch on, heavy batches are validated in threads."""
        steps = self._steps()
        for partition, part in steps:
            self.keep_bytes()
            if self.verification is None and self._request.transactional_id is not None:
                self.verification = completed_verification(self._call, self._request)
            return self._append_rest(steps, partition, part)
        return self._outcome()

    def keep_bytes(self) -> None:
        """Copy the remaining records: the request's buffer is reused once the handler returns."""
        for topic in self._request.topic_data:
            for part in topic.partition_data:
                if isinstance(part.records, memoryview):
                    part.records = memoryview(bytearray(part.records))

    def _steps(self) -> Generator[tuple[Partition, PartitionProduceData], _Accepted, None]:
        """Append all batches. Yield each batch that is too heavy for the event loop, and take its validation result."""
        call, acks, is_regular = self._call, self._request.acks, self._is_regular
        version, partitions, now_ms = call.version, call.node.partitions, call.node.now_ms()
        answers_of: dict[str | bytes, list[PartitionProduceResponse]] = {}
        for topic in self._request.topic_data:
            if version >= _FIRST_WITH_IDS:
                key: str | bytes = topic.topic_id
                by_index = partitions.by_id.get(topic.topic_id, _NO_PARTITIONS)
            else:
                key = topic.name
                by_index = partitions.by_name.get(topic.name, _NO_PARTITIONS)
            answers = answers_of.get(key)
            if answers is None and topic.partition_data:
                answers = answers_of[key] = []
                self._response.responses.append(
                    TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
                )
            for part in topic.partition_data:
                accepted: _Accepted | None = None
                while True:
                    partition = None
                    try:
                        candidate = by_index.get(part.index) or _get_partition(partitions, version, topic, part.index)
                        data: memoryview = part.records if is_regular else _only_batch(part, version)  # type: ignore[assignment] # survey saw it
                        if acks not in _ACKS:
                            raise InvalidRequiredAcks(f"acks must be 0, 1 or -1, not {acks}")
                        if self.verification is not None:
                            self.verification.check_answer(candidate)
                        partition = candidate
                        answer = self._append(partition, data, accepted, acks, now_ms)
                    except TooHeavy:
                        accepted = yield candidate, part
                        now_ms, by_index = call.node.now_ms(), _NO_PARTITIONS  # the topic may be deleted meanwhile
                        continue
                    except ApiError as error:
                        self._failed, answer = error.with_traceback(None), _failed(part.index, error, partition)
                    except OSError as error:
                        self._failed = StorageFailed(str(error))
                        answer = _failed(part.index, self._failed)
                    break
                assert answers is not None, "the topic has partitions, and so a list of answers"
                answers.append(answer)
                part.records = None

    def _append(
        self, partition: Partition, data: memoryview, accepted: _Accepted | None, acks: int, now_ms: int
    ) -> PartitionProduceResponse:
        """Append to one partition, and return its answer, which may have to wait for replicas or for a sync."""
        if isinstance(accepted, ApiError):
            raise accepted
        if self.verification is not None:
            self.verification.check_guard(partition, data)
        if accepted is None:
            appended = partition.append_unless_heavy(data, acks, now_ms)
        else:
            appended = partition.append(accepted, acks=acks, now_ms=now_ms, is_validated=True)
        log = partition.log
        answer = PartitionProduceResponse(
            index=partition.index,
            base_offset=appended.base_offset,
            log_append_time_ms=appended.append_time_ms,
            log_start_offset=log.log_start_offset,
        )
        if acks == ALL or (acks and log.flush_messages != MAX_INT64):
            end = appended.last_offset + 1
            durable_to = end if end - log.recovery_point >= log.flush_messages else 0
            replicated_to = end if acks == ALL and log.high_watermark < end else 0
            if durable_to or replicated_to:
                self._waiting = self._waiting or []
                self._waiting.append(_Pending(partition, answer, replicated_to, durable_to))
        return answer

    async def _append_rest(
        self,
        steps: Generator[tuple[Partition, PartitionProduceData], _Accepted, None],
        partition: Partition,
        part: PartitionProduceData,
    ) -> ProduceResponse | Later | Nothing:
        """Append the rest, validating heavy batches in threads. The connection waits, which keeps the order."""
        node, accepted = self._call.node, None
        while True:
            data, settings = _only_batch(part, self._call.version), partition.log.settings
            try:
                accepted, _ = await node.in_thread(validate_batch, data, settings, Origin.CLIENT, node.now_ms())
            except RecordError as error:
                # The traceback refers to this frame, and the frame to the error: only the garbage collector frees them.
                accepted = error.with_traceback(None)
            try:
                partition, part = steps.send(accepted)
            except StopIteration:
                return self._outcome()

    def _outcome(self) -> ProduceResponse | Later | Nothing:
        """Return what the handler returns once everything is appended."""
        response, failed, call = self._response, self._failed, self._call
        if self._request.acks == 0:
            if failed is not None:
                raise CloseConnection(f"a Produce request with acks=0 failed: {failed}")
            return NOTHING
        if self._waiting is None:
            return response if failed is None or call.version < 10 else _with_hints(call, response)
        operation = _Waiting(call, response, self._waiting)
        lists = [pending.partition.waiting_produces for pending in self._waiting]
        complete_or_wait(operation, lists, call.node.timer, self._request.timeout_ms)
        return LATER


def _survey(request: ProduceRequest) -> int | None:
    """Return the attributes of all batches combined, if each partition has one regular batch; None otherwise."""
    if survey is None:
        return None
    return survey([part.records for topic in request.topic_data for part in topic.partition_data])


def _get_partition(partitions: Partitions, version: int, topic: TopicProduceData, index: int) -> Partition:
    """Return a partition that was only planned so far; raise ApiError if this broker has no such partition."""
    if version >= _FIRST_WITH_IDS:
        return partitions.get_by_id(topic.topic_id, index)
    return partitions.get(topic.name, index)


def _only_batch(part: PartitionProduceData, version: int) -> memoryview:
    """Return the one batch of a partition; the log validates it further."""
    data = part.records
    if not isinstance(data, memoryview) or len(data) < HEADER_BYTES:
        raise InvalidRecord("a produce request must hold exactly one batch for each partition")
    size = read_length(data, LENGTH_OFFSET)[0] + LENGTH_PREFIX_BYTES
    if size != len(data) and size >= HEADER_BYTES:
        data = _first_batch(data, size)
    if data[MAGIC_OFFSET] < 2:
        raise InvalidRecord(f"the batch has magic {data[MAGIC_OFFSET]}; only magic 2 is supported")
    if version < _FIRST_WITH_ZSTD and data[ATTRIBUTES_LOW_BYTE] & COMPRESSION_MASK == Compression.ZSTD:
        raise UnsupportedCompressionType("zstd needs Produce v7 or later")
    return data


def _first_batch(data: memoryview, size: int) -> memoryview:
    """Return the first batch, if only a part of another follows it. Kafka ignores such a part."""
    if size > len(data):
        raise InvalidRecord(f"the batch has {size} bytes, but the request has only {len(data)} of them")
    rest = data[size:]
    if len(rest) >= LENGTH_PREFIX_BYTES:
        length = read_length(rest, LENGTH_OFFSET)[0]
        if length < _MIN_BATCH_LENGTH:
            raise CorruptMessage(f"a batch with the impossible length {length} follows the first batch")
        if length + LENGTH_PREFIX_BYTES <= len(rest):
            raise InvalidRecord("a produce request must hold exactly one batch for each partition")
    return data[:size]


class _Pending:
    """A partition whose answer waits for replicas or for a sync."""

    __slots__ = ("_answer", "_durable_to", "_replicated_to", "partition")

    def __init__(
        self, partition: Partition, answer: PartitionProduceResponse, replicated_to: int, durable_to: int
    ) -> None:
        self.partition = partition
        self._answer = answer
        self._replicated_to = replicated_to
        self._durable_to = durable_to
        answer.error_code = _TIMED_OUT
        if durable_to:
            # With `flush.messages`, only synced records may be acknowledged.
            partition.log.flusher.when_durable(durable_to, self._wake)

    def settle(self, node: BrokerNode) -> bool:
        """Set the answer and return True, unless it has to wait further."""
        partition = self.partition
        try:
            if not partition.is_leader:
                raise node.partitions.why_not_led(partition)
            if self._replicated_to and not partition.has_replicated(self._replicated_to):
                return False
            if partition.log.recovery_point < self._durable_to:
                return False
        except ApiError as error:
            self._answer.error_code = error.code
        else:
            self._answer.error_code = NONE
        return True

    def _wake(self) -> None:
        self.partition.completions.add(self.partition.waiting_produces)
        self.partition.completions.run()


class _Waiting(Operation):
    """A produce request that waits for replicas."""

    kind = "Produce"

    __slots__ = ("_call", "_pending", "_response")

    def __init__(self, call: Call[BrokerNode], response: ProduceResponse, pending: list[_Pending]) -> None:
        super().__init__()
        self._call = call
        self._response = response
        self._pending = pending

    def try_complete(self) -> bool:
        self._pending = [pending for pending in self._pending if not pending.settle(self._call.node)]
        if self._pending:
            return False
        self._answer()
        return True

    def expire(self) -> None:
        for pending in self._pending:
            self._call.node.expirations.count_produce(pending.partition.topic, pending.partition.index)
        self._answer()

    def give_up(self, error: Exception) -> None:
        self.finish()
        self._call.fail(error)

    def _answer(self) -> None:
        response = self._response
        if self._call.version >= 10:
            response = _with_hints(self._call, response)
        self._call.answer(response)


def _failed(index: int, error: ApiError, partition: Partition | None = None) -> PartitionProduceResponse:
    """Return the answer for a failed partition, with the log start offset unless the error comes without it."""
    answer = PartitionProduceResponse(index=index, error_code=error.code, base_offset=-1)
    if partition is not None and not isinstance(error, ERRORS_WITHOUT_LOG_START):
        answer.log_start_offset = partition.log.log_start_offset
    # As in Kafka, only errors of single records have a message.
    if isinstance(error, RecordError) and error.record_errors:
        answer.error_message = error.message
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=why)
            for number, why in error.record_errors
        ]
    return answer


def _with_hints(call: Call[BrokerNode], response: ProduceResponse) -> ProduceResponse:
    """Add the current leaders of partitions that this broker does not lead."""
    image, leaders = call.node.image, []
    for topic in response.responses:
        name = topic.name
        if call.version >= 13:
            found_topic = image.topic_by_id(topic.topic_id)
            name = found_topic.name if found_topic else ""
        for answer in topic.partition_responses:
            if answer.error_code == NotLeader.code:
                answer.current_leader = leader_of(image, name, answer.index, LeaderIdAndEpoch)
                if answer.current_leader is not None:
                    leaders.append(answer.current_leader.leader_id)
    response.node_endpoints = endpoints_of(image, leaders, call.client.listener, NodeEndpoint)
    return response
