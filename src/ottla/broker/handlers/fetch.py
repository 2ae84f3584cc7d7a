"""Fetch (key 1): read records, as a consumer or as a follower, and wait for them if there are too few.

A fetch is answered at once if it finds enough bytes, an error or a diverging log. Otherwise it waits for its partitions
to grow, and reads again when enough bytes have arrived or at its deadline. A follower waits only briefly if the high
watermark has risen. The answer refers to records as ranges of the log's files.

A fetch of a session reads the partitions that changed since the last fetch. Changes that partitions do not notice, such
as those of ACLs, brokers or the client, make it read all partitions of the session again.

The authorizer is asked once a request, about each topic with the number of its partitions: only about the partitions
that changed, because the others cannot be refused in the meantime, unless the authorizer wants all
(`must_recheck_sessions`).
"""

from __future__ import annotations

from collections.abc import Container, Coroutine
from functools import partial
from typing import Any, cast

from ottla.broker.authorization.access_checks import ask_authorizer
from ottla.broker.authorization.actions import Authorizer, Unanswered
from ottla.broker.handlers.fetch_authorization import check_readable, unreadable
from ottla.broker.handlers.leader_hints import endpoints_of, leader_of
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import LATER, Call, Later
from ottla.broker.requests.endpoint import endpoint
from ottla.protocol.errors import (
    ApiError,
    FencedLeaderEpoch,
    FetchSessionIdNotFound,
    FetchSessionTopicIdMismatch,
    InconsistentTopicId,
    InvalidFetchSessionEpoch,
    NotLeader,
    StorageFailed,
    TopicAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.fetch import (
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
from ottla.replication.fetch_sessions import FIRST_WITH_IDS, CachedPartition, FetchedPartitions, FetchSession, Key
from ottla.replication.partition import Diverging, Partition
from ottla.replication.purgatory import Operation
from ottla.replication.replica_selector import replica_in_rack
from ottla.storage.log.partition_log import Isolation
from ottla.storage.log.reading import Fetched

READ_COMMITTED = 1
_NO_RECORDS = b""
_NOTIFY_FOLLOWERS_MS = 20
"""How long a waiting follower may lag behind a risen high watermark: new records often arrive first."""
_SESSION_ERRORS = (FetchSessionIdNotFound, InvalidFetchSessionEpoch, FetchSessionTopicIdMismatch)
_DELAYED_ERRORS = (UnknownTopicOrPartition, UnknownTopicId, TopicAuthorizationFailed)
"""Errors of single partitions, which do not keep the other partitions from waiting for records."""


def fetch_failed(request: FetchRequest, version: int, error: ApiError) -> FetchResponse:
    """Return an error of the whole request; before v13 also in each partition, unless it is an error of the session."""
    if isinstance(error, _SESSION_ERRORS):
        return FetchResponse(error_code=error.code)
    responses = []
    for topic in request.topics if version < FIRST_WITH_IDS else ():
        partitions = [_failed(part.partition, error) for part in topic.partitions]
        for answer in partitions:
            answer.aborted_transactions = []
        responses.append(FetchableTopicResponse(topic=topic.topic, partitions=partitions))
    return FetchResponse(error_code=error.code, session_id=request.session_id, responses=responses)


@endpoint(ApiKey.FETCH, failed=fetch_failed)
def fetch(
    call: Call[BrokerNode], request: FetchRequest
) -> FetchResponse | Later | Coroutine[Any, Any, FetchResponse | Later]:
    """Read the requested partitions, or wait for records."""
    node, version = call.node, call.version
    reading = _Reading(call, request, node.sessions.begin(request, version, node.now_ms()))
    if node.authorizer is not None:
        try:
            reading.ask_access(node.authorizer)
        except Unanswered:
            return _when_allowed(reading, node.authorizer)
    return _begin(reading)


async def _when_allowed(reading: _Reading, authorizer: Authorizer) -> FetchResponse | Later:
    await ask_authorizer(reading.call, partial(reading.ask_access, authorizer))
    return _begin(reading)


def _begin(reading: _Reading) -> FetchResponse | Later:
    request = reading.request
    reading.read()
    if (
        request.max_wait_ms <= 0
        or reading.size >= request.min_bytes
        or reading.is_decided
        or len(reading.missing) == len(reading.fetched.partitions)
        or reading.is_on_older_segment()
    ):
        return reading.response()
    reading.wait()
    return LATER


class _Reading:
    """One fetch: its partitions, and the last answers of those that changed."""

    def __init__(self, call: Call[BrokerNode], request: FetchRequest, fetched: FetchedPartitions) -> None:
        self.call = call
        self.request = request
        self.fetched = fetched
        self.size = 0
        """The bytes that the last reads found."""
        self.is_decided = False
        """Whether the fetch must be answered at once, whatever its size."""
        self.is_waiting = False
        self.missing: dict[Key, PartitionData] = {}
        """Partitions that did not exist when the request arrived, or that the client may not read."""
        self._read: list[tuple[CachedPartition, PartitionData]] = []
        self._forbidden: Container[str] | None = None
        """The topics that the client may not read; None if it may read all."""
        self.replica = fetched.replica
        if self.replica >= 0:
            self.isolation = Isolation.LOG_END
        elif request.isolation_level == READ_COMMITTED:
            self.isolation = Isolation.LAST_STABLE
        else:
            self.isolation = Isolation.HIGH_WATERMARK
        if fetched.session is not None and call.node.authorizer is None:
            self._set_reader(fetched.session, ())

    def ask_access(self, authorizer: Authorizer) -> None:
        """Ask the authorizer once about all topics: a follower must be a broker, a consumer may read the topics."""
        call, fetched = self.call, self.fetched
        if fetched.session is None:
            self._forbidden = unreadable(call, self.request, fetched, only_changed=False)
            return
        rights = (call.client.principal, call.node.image.acls)
        if authorizer.must_recheck_sessions:
            self._forbidden = unreadable(call, self.request, fetched, only_changed=False)
            self._set_reader(fetched.session, (*rights, self._forbidden))
        else:
            self._set_reader(fetched.session, rights)
            self._forbidden = unreadable(call, self.request, fetched, only_changed=True)

    def _set_reader(self, session: FetchSession, rights: tuple[object, ...]) -> None:
        """Read all partitions of a session again if the client's rights or another condition of its reads changed."""
        call = self.call
        client, brokers = call.client, call.node.image.brokers
        reader = (client, call.version, self.isolation, self.request.rack_id, brokers, *rights)
        if session.reader != reader:
            session.reader = reader
            self.fetched.mark_all()

    def read(self) -> None:
        """Read the partitions that changed, up to the maximum size of the answer."""
        left = min(self.request.max_bytes, self.call.node.fetch_max_bytes)
        read = []
        fetched = self.fetched
        if len(fetched.changed) > 1:
            fetched.sort_changed()
        for cached in fetched.changed:
            answer = self._read_one(cached, left)
            read.append((cached, answer))
            records = answer.records
            if records is not None:
                size = len(records)
                self.size += size
                left -= size
        self._read = read

    def read_again(self) -> None:
        """Read again from the start."""
        self.size, self.is_decided = 0, False
        self.read()

    def response(self) -> FetchResponse:
        """Build the response, and update the session."""
        call, node = self.call, self.call.node
        session_id, chosen = node.sessions.finish(self.fetched, self._read, self.request, call.version, node.now_ms())
        response = FetchResponse(session_id=session_id)
        by_topic: dict[str | bytes, FetchableTopicResponse] = {}
        leaders: list[int] = []
        for cached, answer in chosen:
            topic = by_topic.get(cached.topic)
            if topic is None:
                topic = FetchableTopicResponse()
                if isinstance(cached.topic, str):
                    topic.topic = cached.topic
                else:
                    topic.topic_id = cached.topic
                by_topic[cached.topic] = topic
                response.responses.append(topic)
            topic.partitions.append(answer)
            if self.replica >= 0 and answer.records and node.leader_throttle is not None:
                name = cached.topic if isinstance(cached.topic, str) else cached.name
                node.leader_throttle.count(name or "", answer.partition_index, len(answer.records))
            if answer.error_code and call.version >= 16:
                self._hint(cached, answer, leaders)
        if leaders and self.replica < 0:
            response.node_endpoints = endpoints_of(node.image, leaders, call.client.listener, NodeEndpoint)
        return response

    def wait(self) -> None:
        """Answer when enough bytes have arrived, or at the deadline."""
        fetched, self.is_waiting = self.fetched, True
        operation = fetched.waiting = _WaitingFetch(self)
        self.call.node.timer.add(operation, self.request.max_wait_ms)
        if operation.may_hurry and any(cached.is_behind(answer) for cached, answer in self._read):
            operation.hurry()
        fetched.begin_waiting(self._read)
        self._read = []

    def look(self) -> bool:
        """Read the partitions that changed while the fetch waited; return whether the fetch can be answered now."""
        fetched = self.fetched
        woken = fetched.woken
        fetched.woken = []
        if len(woken) >= len(fetched.changed):
            self.read_again()
            if self.size >= self.request.min_bytes or self.is_decided or self.is_on_older_segment():
                return True
            for cached, answer in self._read:
                cached.seen_bytes = len(answer.records or _NO_RECORDS)
            self._read = []
            return False
        for cached in cast("dict[CachedPartition, None]", dict.fromkeys(woken)):
            answer = self._read_one(cached, self.request.max_bytes)
            if answer.error_code or answer.diverging_epoch is not None or self._is_on_older_segment(cached):
                self.is_decided = True
            size = len(answer.records or _NO_RECORDS)
            self.size += size - cached.seen_bytes
            cached.seen_bytes = size
        return self.size >= self.request.min_bytes or self.is_decided

    def is_on_older_segment(self) -> bool:
        """Return whether a fetch offset is in an older segment than the log end: such a fetch does not wait."""
        return self.size > 0 and any(map(self._is_on_older_segment, self.fetched.changed))

    def _is_on_older_segment(self, cached: CachedPartition) -> bool:
        partition, offset = cached.partition, cached.request.fetch_offset
        if partition is None or len(partition.log.segments) == 1:
            return False
        log = partition.log
        limit = log.limit(self.isolation)
        return offset < limit and log.segment_at(offset) < log.segment_at(limit)

    def complete(self) -> None:
        """Answer with the records that are available now."""
        fetched = self.fetched
        session = fetched.session
        fetched.waiting = None
        if fetched.woken:
            fetched.woken = []
        if session is None:
            if len(self._read) != len(fetched.partitions):
                fetched.mark_all()
                self.read_again()
            for cached in fetched.partitions.values():
                cached.end()
        elif len(self._read) != len(fetched.changed):
            self.read_again()
        response = self.response()
        if session is not None and session.is_closed:
            fetched.release()
        self.call.answer(response)

    def _read_one(self, cached: CachedPartition, left: int) -> PartitionData:
        requested = cached.request
        cached.is_exhausted = False
        if self.missing and cached.key in self.missing:
            return self.missing[cached.key]
        try:
            if self._forbidden is not None:
                check_readable(self.call, cached, self._forbidden)
            partition = cached.partition
            if partition is None:
                partition = self._look_up(cached)
            room = requested.partition_max_bytes
            if room > left or room < 0:
                room = max(min(room, left), 0)
            if self.replica >= 0:
                result = self._read_for_follower(partition, requested, room)
            elif self.call.node.reads_by_rack and (nearer := self._nearer_replica(partition, requested)) is not None:
                return self._redirected(partition, requested, nearer)
            else:
                result = partition.read(
                    requested.fetch_offset,
                    room,
                    self.isolation,
                    leader_epoch=requested.current_leader_epoch,
                    last_fetched_epoch=requested.last_fetched_epoch,
                    from_leader_only=self.call.version < 11,
                    whole_first=not self.size,
                )
        except ApiError as error:
            return self._refused(cached, error)
        except OSError as error:
            return self._refused(cached, StorageFailed(str(error)))
        log = partition.log
        answer = PartitionData(
            partition_index=requested.partition,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=None,
            records=_NO_RECORDS,
        )
        if isinstance(result, Diverging):
            self.is_decided = True
            answer.diverging_epoch = EpochEndOffset(epoch=result.epoch, end_offset=result.end_offset)
            return answer
        if result.records is not None:
            answer.records = result.records
        elif requested.fetch_offset >= log.limit(self.isolation):
            # A follower outside the ISR is read with each of its fetches, because it may join the ISR.
            cached.is_exhausted = self.replica < 0 or self.replica in partition.isr
        elif room > 0:
            return answer  # without records, as in Kafka, if the next batch is too large
        if result.aborted is not None:
            answer.aborted_transactions = [
                AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
                for aborted in result.aborted
            ]
        return answer

    def _refused(self, cached: CachedPartition, error: ApiError) -> PartitionData:
        """Return the answer for a partition that cannot be read. Most errors are answered at once."""
        index = cached.request.partition
        if isinstance(error, _DELAYED_ERRORS) and not self.is_waiting:
            answer = self.missing[cached.key] = _failed(index, error)
            answer.aborted_transactions = []
            return answer
        self.is_decided = True
        return _failed(index, self._down_converted(error))

    def _read_for_follower(self, partition: Partition, requested: FetchPartition, room: int) -> Fetched | Diverging:
        result = partition.read_for_follower(
            self.replica,
            requested.fetch_offset,
            room,
            leader_epoch=requested.current_leader_epoch,
            last_fetched_epoch=requested.last_fetched_epoch,
            whole_first=not self.size,
        )
        throttle = self.call.node.leader_throttle
        if (
            throttle is not None
            and isinstance(result, Fetched)
            and self.replica not in partition.isr
            and throttle.holds_back(partition.topic, partition.index)
        ):
            result = Fetched(None)
        # The follower's own state was true when the request arrived; a read after a wait must not report it again.
        if not self.is_waiting and not isinstance(result, Diverging):
            state = self.request.replica_state
            partition.on_follower_fetch(
                self.replica,
                requested.fetch_offset,
                requested.log_start_offset,
                self.call.node.now_ms(),
                broker_epoch=-1 if state is None else state.replica_epoch,
            )
        return result

    def _nearer_replica(self, partition: Partition, requested: FetchPartition) -> int | None:
        """Return the replica in the consumer's rack; from v11 on, consumers name their rack."""
        return replica_in_rack(
            partition,
            self.call.node.image,
            rack=self.request.rack_id,
            listener=self.call.client.listener,
            offset=requested.fetch_offset,
        )

    def _redirected(self, partition: Partition, requested: FetchPartition, replica: int) -> PartitionData:
        if requested.current_leader_epoch >= 0:
            partition.check_epoch(requested.current_leader_epoch)
        self.is_decided = True
        log = partition.log
        return PartitionData(
            partition_index=requested.partition,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=None,
            preferred_read_replica=replica,
            records=_NO_RECORDS,
        )

    def _look_up(self, cached: CachedPartition) -> Partition:
        """Find a partition of this broker. From now on, it notifies the session or the waiting fetch of changes."""
        partitions, topic = self.call.node.partitions, cached.topic
        if isinstance(topic, str):
            partition = partitions.get(topic, cached.request.partition)
        else:
            try:
                partition = partitions.get_by_id(topic, cached.request.partition)
            except UnknownTopicId as error:
                if cached.name is None:
                    raise
                # The id existed when the session or the wait began: the topic was deleted, and perhaps recreated.
                partition = partitions.get(cached.name, cached.request.partition)
                raise InconsistentTopicId(f"topic {cached.name} was recreated with another id") from error
            cached.name = partition.topic
        cached.partition = partition
        if self.is_waiting or self.fetched.session is not None:
            cached.begin(partition)
        return partition

    def _down_converted(self, error: ApiError) -> ApiError:
        # Clients before v6 do not know the error of a failed disk; they can look for a new leader.
        return NotLeader(error.message) if isinstance(error, StorageFailed) and self.call.version < 6 else error

    def _hint(self, cached: CachedPartition, answer: PartitionData, leaders: list[int]) -> None:
        if answer.error_code in (NotLeader.code, FencedLeaderEpoch.code):
            image, name = self.call.node.image, cached.topic
            if not isinstance(name, str):
                topic = image.topic_by_id(name)
                name = topic.name if topic else ""
            answer.current_leader = leader_of(image, name, answer.partition_index, LeaderIdAndEpoch)
            if answer.current_leader is not None:
                leaders.append(answer.current_leader.leader_id)


class _WaitingFetch(Operation):
    """A fetch that waits for more bytes."""

    kind = "Fetch"

    __slots__ = ("_is_hastened", "_reading", "may_hurry")

    def __init__(self, reading: _Reading) -> None:
        super().__init__()
        self._reading = reading
        self._is_hastened = False
        """Whether it is answered before its deadline, to report the high watermark."""
        self.may_hurry = reading.replica >= 0 and reading.fetched.session is not None
        """Whether it belongs to a follower with a session, and its deadline is still the requested one."""

    def wake(self) -> None:
        if not self.is_done and self._reading.look():
            self.finish()
            self._reading.complete()

    def try_complete(self) -> bool:
        self.wake()
        return self.is_done

    def hurry(self) -> None:
        """Tell a follower the high watermark soon, though it has nothing to copy.

        Consumers may read from the follower, and it may lead next.
        """
        if self.may_hurry:
            self.may_hurry = False
            self._is_hastened = self._reading.call.node.timer.hasten(self, _NOTIFY_FOLLOWERS_MS)

    def expire(self) -> None:
        reading = self._reading
        if not self._is_hastened:
            expirations = reading.call.node.expirations
            if reading.replica >= 0:
                expirations.follower_fetches += 1
            else:
                expirations.consumer_fetches += 1
        reading.complete()

    def give_up(self, error: Exception) -> None:
        self.finish()
        fetched = self._reading.fetched
        fetched.waiting = None
        if fetched.session is None:
            for cached in fetched.partitions.values():
                cached.end()
        self._reading.call.fail(error)


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
