"""Fetch (key 1): read records, as a consumer or as a follower, and wait for them if there are too few.

A fetch is answered at once when it finds enough bytes, an error, or a log that diverges; otherwise it waits for its
partitions to grow, and reads again when enough has come or its time is over. A follower does not wait for long where
its leader's high watermark has risen. Records are ranges of the log's files.
"""

from __future__ import annotations

from ottla.api.call import LATER, Call, Later
from ottla.api.endpoint import endpoint
from ottla.api.guarding import require_readable
from ottla.api.hints import endpoints_of, leader_of
from ottla.api.node import BrokerNode
from ottla.errors import (
    ApiError,
    FencedLeaderEpoch,
    InconsistentTopicId,
    NotLeader,
    StorageFailed,
    TopicAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ottla.log.partition_log import Isolation
from ottla.log.reading import Fetched
from ottla.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from ottla.replica.partition import NO_EPOCH, Diverging, Partition
from ottla.replica.read_replica import replica_in_rack
from ottla.replica.sessions import Fetch, Key, Target, replica_id
from ottla.replica.waiting import Operation

READ_COMMITTED = 1
_NO_RECORDS = b""
_TELL_FOLLOWERS_MS = 20
"""How long a follower that waits for records may not know that the high watermark rose: often records come first."""
_TOLD_LATER = (UnknownTopicOrPartition, UnknownTopicId, TopicAuthorizationFailed)
"""What is wrong with some partitions, and does not keep the others from waiting for records."""


def fetch_failed(request: FetchRequest, version: int, error: ApiError) -> FetchResponse:
    """An error of the whole request; before v7 there is only room for it in each partition."""
    if version >= 7:
        return FetchResponse(error_code=error.code)
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic, partitions=[_failed(part.partition, error) for part in topic.partitions]
            )
            for topic in request.topics
        ]
    )


@endpoint(1, failed=fetch_failed)
def fetch(call: Call[BrokerNode], request: FetchRequest) -> FetchResponse | Later:
    """Read what the request asks for, or wait for it."""
    node, version = call.node, call.version
    reading = _Reading(call, request, node.sessions.begin(request, version, node.now_ms()))
    reading.read()
    has_none = len(reading.missing) == len(reading.fetch.targets)
    if request.max_wait_ms <= 0 or reading.size >= request.min_bytes or reading.is_decided or has_none:
        return reading.response()
    reading.wait()
    return LATER


class _Reading:
    """One fetch: its partitions, and what was last read of them."""

    def __init__(self, call: Call[BrokerNode], request: FetchRequest, fetch: Fetch) -> None:
        self.call = call
        self.request = request
        self.fetch = fetch
        self.answers: list[PartitionData] = []
        self.size = 0
        self.is_decided = False
        """Whether something is to be told at once, whatever the size."""
        self.is_waiting = False
        self.missing: dict[Key, PartitionData] = {}
        """Partitions that did not exist when the request came, or may not be read: told of when the others are."""
        self.replica = replica_id(request, call.version)
        if self.replica >= 0:
            self.isolation = Isolation.LOG_END
        elif request.isolation_level == READ_COMMITTED:
            self.isolation = Isolation.LAST_STABLE
        else:
            self.isolation = Isolation.HIGH_WATERMARK

    def read(self) -> None:
        """Read all partitions, as far as the size of the answer allows."""
        self.answers, self.size, self.is_decided = [], 0, False
        left = min(self.request.max_bytes, self.call.node.fetch_max_bytes)
        for target in self.fetch.targets:
            answer = self._read_one(target, left)
            self.answers.append(answer)
            records = answer.records
            if records is not None:
                self.size += len(records)
                left -= len(records)

    def response(self) -> FetchResponse:
        """The answer, put together for the session."""
        call, node = self.call, self.call.node
        session_id, chosen = node.sessions.finish(self.fetch, self.request, call.version, self.answers, node.now_ms())
        response = FetchResponse(session_id=session_id)
        by_topic: dict[str | bytes, FetchableTopicResponse] = {}
        leaders: list[int] = []
        for target, answer in chosen:
            topic = by_topic.get(target.topic)
            if topic is None:
                topic = FetchableTopicResponse()
                if isinstance(target.topic, str):
                    topic.topic = target.topic
                else:
                    topic.topic_id = target.topic
                by_topic[target.topic] = topic
                response.responses.append(topic)
            topic.partitions.append(answer)
            if self.replica >= 0 and answer.records and node.leader_throttle is not None:
                name = target.topic if isinstance(target.topic, str) else target.name
                node.leader_throttle.count(name or "", answer.partition_index, len(answer.records))
            if answer.error_code and call.version >= 16:
                self._hint(target, answer, leaders)
        if leaders and self.replica < 0:
            response.node_endpoints = endpoints_of(node.image, leaders, call.client.listener, NodeEndpoint)
        return response

    def wait(self) -> None:
        """Answer when enough has come, or when the time is over."""
        operation = _Waiting(self)
        is_only = len(self.fetch.targets) - len(self.missing) == 1
        for target, answer in zip(self.fetch.targets, self.answers, strict=True):
            if target.key in self.missing:
                continue
            partition = self._find(target)
            watch = operation if is_only else _Watch(operation, target, len(answer.records or b""))
            (partition.waiting_fetches if self.replica < 0 else partition.waiting_followers).add(watch)
        self.is_waiting = True
        self.call.node.timer.add(operation, self.request.max_wait_ms)
        if operation.may_hurry and any(map(Target.is_behind, self.fetch.targets, self.answers)):
            operation.hurry()

    def _read_one(self, target: Target, left: int) -> PartitionData:
        asked = target.request
        if self.missing and target.key in self.missing:
            return self.missing[target.key]
        try:
            partition = self._find(target)
            room = max(min(asked.partition_max_bytes, left), 0)
            if self.replica >= 0:
                found = self._read_for_follower(partition, asked, room)
            elif self.call.node.reads_by_rack and (nearer := self._nearer_replica(partition, asked)) is not None:
                return self._redirected(partition, asked, nearer)
            else:
                found = partition.read(
                    asked.fetch_offset,
                    room,
                    self.isolation,
                    leader_epoch=max(asked.current_leader_epoch, NO_EPOCH),
                    last_fetched_epoch=asked.last_fetched_epoch,
                    from_leader_only=self.call.version < 11,
                    whole_first=not self.size,
                )
        except ApiError as error:
            if isinstance(error, _TOLD_LATER) and not self.is_waiting:
                answer = self.missing[target.key] = _failed(asked.partition, error)
                answer.aborted_transactions = []
                return answer
            self.is_decided = True
            return _failed(asked.partition, self._down_converted(error))
        except OSError as error:
            self.is_decided = True
            return _failed(asked.partition, StorageFailed(str(error)))
        log = partition.log
        answer = PartitionData(
            partition_index=asked.partition,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=None,
            records=_NO_RECORDS,
        )
        if isinstance(found, Diverging):
            self.is_decided = True
            answer.diverging_epoch = EpochEndOffset(epoch=found.epoch, end_offset=found.end_offset)
            return answer
        if found.records is not None:
            answer.records = found.records
        # Null where there is a batch that is too large for the room there is, as in Kafka.
        is_left_out = found.records is None and room and asked.fetch_offset < log.limit(self.isolation)
        if found.aborted is not None and not is_left_out:
            answer.aborted_transactions = [
                AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
                for aborted in found.aborted
            ]
        return answer

    def _read_for_follower(self, partition: Partition, asked: FetchPartition, room: int) -> Fetched | Diverging:
        found = partition.read_for_follower(
            self.replica,
            asked.fetch_offset,
            room,
            leader_epoch=max(asked.current_leader_epoch, NO_EPOCH),
            last_fetched_epoch=asked.last_fetched_epoch,
            whole_first=not self.size,
        )
        throttle = self.call.node.leader_throttle
        if (
            throttle is not None
            and isinstance(found, Fetched)
            and self.replica not in partition.isr
            and throttle.holds_back(partition.topic, partition.index)
        ):
            found = Fetched(None)
        # What it says of itself was true when the request came, and is not said again when a wait is over.
        if not self.is_waiting and not isinstance(found, Diverging):
            state = self.request.replica_state
            partition.on_follower_fetch(
                self.replica,
                asked.fetch_offset,
                asked.log_start_offset,
                self.call.node.now_ms(),
                broker_epoch=-1 if state is None else state.replica_epoch,
            )
        return found

    def _nearer_replica(self, partition: Partition, asked: FetchPartition) -> int | None:
        """The replica that a consumer should rather ask; it tells its rack from v11 on."""
        return replica_in_rack(
            partition,
            self.call.node.image,
            rack=self.request.rack_id,
            listener=self.call.client.listener,
            offset=asked.fetch_offset,
        )

    def _redirected(self, partition: Partition, asked: FetchPartition, replica: int) -> PartitionData:
        partition.check_epoch(max(asked.current_leader_epoch, NO_EPOCH))
        self.is_decided = True
        log = partition.log
        return PartitionData(
            partition_index=asked.partition,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=None,
            preferred_read_replica=replica,
            records=_NO_RECORDS,
        )

    def _find(self, target: Target) -> Partition:
        partitions, topic = self.call.node.partitions, target.topic
        if self.call.node.authorizer is not None:
            self._check_access(target)
        if isinstance(topic, str):
            return partitions.get(topic, target.request.partition)
        try:
            partition = partitions.get_by_id(topic, target.request.partition)
        except UnknownTopicId as error:
            if target.name is None:
                raise
            # The id was known when the session or the wait began: the topic is gone since, or was made anew.
            partition = partitions.get(target.name, target.request.partition)
            raise InconsistentTopicId(f"{target.name} was made anew, with another id") from error
        target.name = partition.topic
        return partition

    def _check_access(self, target: Target) -> None:
        """Followers must be brokers; consumers may read what they have the right to."""
        name = target.topic if isinstance(target.topic, str) else target.name
        if name is None and isinstance(target.topic, bytes):
            topic = self.call.node.image.topic_by_id(target.topic)
            name = None if topic is None else topic.name
        if name is None:
            return  # nobody has such a topic, which is told instead
        require_readable(self.call, name, by_follower=self.replica >= 0)

    def _down_converted(self, error: ApiError) -> ApiError:
        # Clients before v6 do not know of failing disks; a new leader is what they can look for.
        return NotLeader(error.message) if isinstance(error, StorageFailed) and self.call.version < 6 else error

    def _hint(self, target: Target, answer: PartitionData, leaders: list[int]) -> None:
        if answer.error_code in (NotLeader.code, FencedLeaderEpoch.code):
            image, name = self.call.node.image, target.topic
            if not isinstance(name, str):
                topic = image.topic_by_id(name)
                name = topic.name if topic else ""
            answer.current_leader = leader_of(image, name, answer.partition_index, LeaderIdAndEpoch)
            if answer.current_leader is not None:
                leaders.append(answer.current_leader.leader_id)


class _Waiting(Operation):
    """A fetch that found too little."""

    __slots__ = ("_reading", "counted", "may_hurry")

    def __init__(self, reading: _Reading) -> None:
        super().__init__()
        self._reading = reading
        self.counted = reading.size
        self.may_hurry = reading.replica >= 0 and reading.fetch.session is not None
        """Whether it is a follower's, of which is known what it was told, and waits for as long as it asked to."""

    def try_complete(self) -> bool:
        """For a fetch of one partition, which alone is looked at."""
        reading = self._reading
        reading.read()
        if reading.size < reading.request.min_bytes and not reading.is_decided:
            return False
        reading.call.answer(reading.response())
        return True

    def grew(self, by: int) -> bool:
        """One of several partitions has more than when it was last looked at; whether that is enough."""
        self.counted += by
        if self.is_done or self.counted < self._reading.request.min_bytes:
            return self.is_done
        self.is_done = True
        self.expire()
        return True

    def hurry(self) -> None:
        """Let a follower know soon how far the log is committed, though there is nothing to copy: consumers may read
        from it, and it may lead next. Others learn of that by what they wait for."""
        if self.may_hurry:
            self.may_hurry = False
            self._reading.call.node.timer.add(self, _TELL_FOLLOWERS_MS)

    def expire(self) -> None:
        self._reading.read()
        self._reading.call.answer(self._reading.response())


class _Watch(Operation):
    """One partition of a fetch of several: so that a wake-up costs the same however many there are."""

    __slots__ = ("_operation", "_seen", "_target")

    def __init__(self, operation: _Waiting, target: Target, seen: int) -> None:
        super().__init__()
        self._operation = operation
        self._target = target
        self._seen = seen

    def try_complete(self) -> bool:
        if self._operation.is_done:
            return True
        reading, seen = self._operation._reading, self._seen
        answer = reading._read_one(self._target, reading.request.max_bytes)
        if answer.error_code or answer.diverging_epoch is not None:
            return self._operation.grew(reading.request.min_bytes)
        self._seen = len(answer.records or b"")
        return self._operation.grew(self._seen - seen)

    def hurry(self) -> None:
        self._operation.hurry()

    def expire(self) -> None:
        """Its fetch has a deadline of its own."""


def _failed(index: int, error: ApiError) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=error.code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=None,
        records=_NO_RECORDS,
    )
