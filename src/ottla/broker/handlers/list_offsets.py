"""ListOffsets (key 2): the first and last offsets of partitions, and offsets by timestamp.

v1 one offset a partition · v2 isolation levels · v4 leader epochs · v5 OFFSET_NOT_AVAILABLE · v7 the largest timestamp
· v8 the earliest local offset · v9 the latest offset in tiered storage · v10 a timeout for lookups there · v11 the
earliest offset that is not uploaded yet. Without tiered storage, lookups in it find nothing.

A lookup by timestamp reads the log from an index entry on. If the record is not close by, it continues in a thread.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator
from typing import Any, Final

from ottla.broker.authorization.data_guards import guard_list_offsets
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call
from ottla.broker.requests.endpoint import endpoint
from ottla.protocol.errors import (
    ApiError,
    CorruptMessage,
    InvalidRequest,
    LeaderNotAvailable,
    NotLeader,
    OffsetNotAvailable,
    StorageFailed,
    UnknownServerError,
    UnsupportedVersion,
)
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.wire.batch import NO_TIMESTAMP
from ottla.storage.log.partition_log import Isolation
from ottla.storage.log.reading import Location, Search, earliest, searches, searches_for_latest
from ottla.storage.log.scan import CorruptLog
from ottla.storage.log.segment import Segment

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
_SINCE: Final = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""Special timestamp → the first version that has it."""

CONSUMER: Final = -1
DEBUGGING: Final = -2
"""The replica id of a reader that accepts a follower's answer."""
_READ_UNCOMMITTED: Final = 0
_READ_COMMITTED: Final = 1
_NEAR_BYTES: Final = 1 << 20
_COLD_AT_ONCE: Final = 50
"""How many segments read their largest timestamps before other requests run; each takes 0.1 ms the first time."""
_NOT_FOUND: Final = Location(-1, NO_TIMESTAMP, -1)


def list_offsets_failed(request: ListOffsetsRequest, version: int, error: ApiError) -> ListOffsetsResponse:
    """Return the error for each partition."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=part.partition_index, error_code=error.code)
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


@endpoint(ApiKey.LIST_OFFSETS, failed=list_offsets_failed, guard=guard_list_offsets)
def list_offsets(
    call: Call[BrokerNode], request: ListOffsetsRequest
) -> ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse]:
    """Look up each partition. A partition that is named twice fails, once."""
    if request.isolation_level not in (_READ_UNCOMMITTED, _READ_COMMITTED):
        raise UnknownServerError(f"there is no isolation level {request.isolation_level}")
    times_named = Counter((topic.name, part.partition_index) for topic in request.topics for part in topic.partitions)
    topics: dict[str, dict[int, ListOffsetsPartitionResponse]] = {}
    far: list[_Lookup] = []
    for topic in request.topics:
        answers = topics.setdefault(topic.name, {})
        for part in topic.partitions:
            index = part.partition_index
            if index in answers:
                continue
            answer = answers[index] = ListOffsetsPartitionResponse(partition_index=index)
            try:
                if times_named[topic.name, index] > 1:
                    raise InvalidRequest(f"the request names {topic.name}-{index} more than once")
                lookup = _Lookup(call, request, topic.name, part, answer)
                if not lookup.look_nearby():
                    far.append(lookup)
            except (ApiError, CorruptLog, OSError) as error:
                _refuse(answer, error, call.version)
    response = ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(name=name, partitions=list(answers.values()))
            for name, answers in topics.items()
            if answers
        ]
    )
    return _look_far(call, response, far) if far else response


async def _look_far(call: Call[BrokerNode], response: ListOffsetsResponse, far: list[_Lookup]) -> ListOffsetsResponse:
    for lookup in far:
        try:
            await lookup.look_far()
        except (ApiError, CorruptLog, OSError) as error:
            _refuse(lookup.answer, error, call.version)
    return response


class _Lookup:
    """The lookup of one partition. Leader and limit stay those of its beginning."""

    def __init__(
        self,
        call: Call[BrokerNode],
        request: ListOffsetsRequest,
        topic: str,
        requested: ListOffsetsPartition,
        answer: ListOffsetsPartitionResponse,
    ) -> None:
        self.answer = answer
        self._timestamp = requested.timestamp
        self._in_thread = call.node.in_thread
        if requested.timestamp < 0 and call.version < _SINCE.get(requested.timestamp, call.version + 1):
            raise UnsupportedVersion(f"ListOffsets v{call.version} has no timestamp {requested.timestamp}")
        self._partition = partition = call.node.partitions.get(topic, requested.partition_index)
        if request.replica_id == DEBUGGING:
            partition.check_epoch(requested.current_leader_epoch)
        else:
            partition.check_leader(requested.current_leader_epoch)
        self._epoch = partition.leader_epoch
        if request.replica_id != CONSUMER:
            isolation = Isolation.LOG_END
        elif request.isolation_level == _READ_COMMITTED:
            isolation = Isolation.LAST_STABLE
        else:
            isolation = Isolation.HIGH_WATERMARK
        self._isolation = isolation
        self._limit = partition.log.limit(isolation)
        self._searches: Iterator[Search] = iter(())
        self._search: Search | None = None
        self._cold: list[Segment] = []

    def look_nearby(self) -> bool:
        """Answer from the indexes and the records close to them; return False if that is not enough."""
        partition, timestamp = self._partition, self._timestamp
        log = partition.log
        if timestamp == LATEST:
            partition.check_readable(self._isolation)
            self._set_answer(Location(self._limit, NO_TIMESTAMP, partition.leader_epoch))
        elif timestamp in (EARLIEST, EARLIEST_LOCAL):
            self._set_answer(earliest(log))
        elif timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            self._set_answer(_NOT_FOUND)
        else:
            self._cold = [segment for segment in log.segments if segment.is_cold]
            return len(self._cold) <= _COLD_AT_ONCE and self._search_all()
        return True

    def _search_all(self) -> bool:
        log, timestamp = self._partition.log, self._timestamp
        self._searches = searches_for_latest(log) if timestamp == MAX_TIMESTAMP else searches(log, timestamp)
        return self._walk()

    async def look_far(self) -> None:
        """Search the rest in a thread."""
        if self._search is None:
            await self._warm_up()
            if self._search_all():
                return
        while True:
            assert self._search is not None
            failure = await self._walk_in_thread(self._search)
            self._check_still_leads()
            if failure is not None:
                raise failure
            if self._search.location is not None:
                self._answer_with(self._search.location)
                return
            if self._walk():
                return

    async def _walk_in_thread(self, search: Search) -> Exception | None:
        """Search to the end; return the failure, if it fails."""
        try:
            await self._in_thread(search.walk)
        except Exception as error:  # noqa: BLE001 (the caller raises it)
            return error
        return None

    async def _warm_up(self) -> None:
        """Let segments that have not read their largest timestamps do so, a few at a time: each reads a file."""
        log = self._partition.log
        for number, segment in enumerate(self._cold, start=1):
            if segment.is_cold and log.segments[log.segment_at(segment.base_offset)] is segment:
                _ = segment.max_timestamp
            if number % _COLD_AT_ONCE == 0:
                await asyncio.sleep(0)
                self._check_still_leads()

    def _check_still_leads(self) -> None:
        if self._partition.leader_epoch != self._epoch:
            raise NotLeader(f"the leader epoch of {self._partition} changed during the lookup")

    def _walk(self) -> bool:
        """Search close by; return whether the answer is set."""
        for search in self._searches:
            if not search.walk(_NEAR_BYTES):
                self._search = search
                return False
            if search.location is not None:
                self._answer_with(search.location)
                return True
        self._partition.check_readable(self._isolation)  # a later record may not be readable yet
        return True

    def _answer_with(self, location: Location) -> None:
        if location.offset < self._limit:
            self._set_answer(location)
        else:
            self._partition.check_readable(self._isolation)

    def _set_answer(self, location: Location) -> None:
        self.answer.offset, self.answer.timestamp, self.answer.leader_epoch = location


def _refuse(answer: ListOffsetsPartitionResponse, error: Exception, version: int) -> None:
    if isinstance(error, OSError):
        error = StorageFailed(str(error))
    elif isinstance(error, CorruptLog):
        error = CorruptMessage(str(error))
    elif isinstance(error, OffsetNotAvailable) and version < 5:
        error = LeaderNotAvailable(error.message)
    assert isinstance(error, ApiError)
    answer.error_code = error.code
