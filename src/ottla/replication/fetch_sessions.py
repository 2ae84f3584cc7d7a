"""Incremental fetch sessions (KIP-227): a client names its partitions once, and later only the changes.

The broker remembers the partitions of a session and what it last sent for each. It reads only the partitions that
changed since the last fetch, and returns only those with news. The session epoch rises with each request, so that lost
or repeated requests are noticed. The number of sessions is limited: a new session may evict an idle or a smaller one,
and a follower's session may evict a consumer's. Fetches without a session return all their partitions.

Partitions are identified by topic id from v13 on, and by topic name before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.protocol.errors import FetchSessionIdNotFound, FetchSessionTopicIdMismatch, InvalidFetchSessionEpoch
from ottla.protocol.messages.rpc.fetch import FetchPartition, FetchRequest, FetchResponse, PartitionData
from ottla.protocol.wire.batch import MAX_INT32
from ottla.replication.fetch_watches import Watch, WatchSet, position

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
FIRST_WITH_IDS: Final = 13
_FIRST_WITH_SESSIONS: Final = 7

TopicKey = str | bytes
Key = tuple[TopicKey, int]
"""Topic name or id, and partition."""


class CachedPartition(Watch):
    """One partition of a fetch: the client's last request for it, and what was last sent to the client."""

    __slots__ = (
        "is_exhausted",
        "name",
        "request",
        "seen_bytes",
        "sent_high_watermark",
        "sent_log_start",
        "topic",
    )

    def __init__(self, fetched: FetchedPartitions, topic: TopicKey, request: FetchPartition) -> None:
        """Initialize a partition that was not read yet. The caller adds it to the set's `changed`."""
        self.watch_set = fetched  # inlines `super().__init__`: one call less for each partition of each full fetch
        self.partition = None
        self.is_notified = False
        self.is_changed = True
        self.position = 0
        self.topic = topic
        self.request = request
        self.name: str | None = None
        """The topic name, once it was looked up by id."""
        self.sent_high_watermark = self.sent_log_start = -1
        self.seen_bytes: int
        """The size of the last read, while a fetch waits for the partition."""
        self.is_exhausted: bool
        """Whether the last read found nothing, so that the next one finds nothing unless the partition changes."""

    @property
    def key(self) -> Key:
        return self.topic, self.request.partition

    def is_behind(self, answer: PartitionData) -> bool:
        """Return whether an answer has a high watermark that was not sent to the client."""
        return answer.high_watermark != self.sent_high_watermark

    def has_news(self, answer: PartitionData) -> bool:
        """Return whether an answer has anything that was not sent to the client."""
        records = answer.records
        return (
            (records is not None and len(records) > 0)
            or answer.high_watermark != self.sent_high_watermark
            or answer.log_start_offset != self.sent_log_start
            or answer.preferred_read_replica >= 0
            or answer.diverging_epoch is not None
            or answer.error_code != 0
        )

    def sent(self, answer: PartitionData) -> None:
        """Remember an answer that is sent to the client."""
        # After an error, the next answer without one always counts as news.
        self.sent_high_watermark = -1 if answer.error_code else answer.high_watermark
        self.sent_log_start = answer.log_start_offset


class FetchedPartitions(WatchSet):
    """The partitions of a session, or of a single fetch without a session."""

    __slots__ = ("partitions", "session")

    changed: list[CachedPartition]  # type: ignore[assignment] # only these are added

    def __init__(self, replica: int, now_ms: int) -> None:
        self.replica = replica  # inlines `WatchSet.__init__`: one call less for each full fetch
        self.used_ms = now_ms
        self.changed = []
        self.waiting = None
        self.woken = []
        self.positions = 0
        self.session: FetchSession | None = None
        self.partitions: dict[Key, CachedPartition] = {}

    def update(self, request: FetchRequest, *, by_id: bool) -> None:
        """Apply the changed and forgotten partitions of a request in a session."""
        partitions = self.partitions
        for topic in request.topics:
            name: TopicKey = topic.topic_id if by_id else topic.topic
            for partition in topic.partitions:
                key = (name, partition.partition)
                cached = partitions.get(key)
                if cached is None:
                    cached = partitions[key] = CachedPartition(self, name, partition)
                    cached.go_last()
                    self.changed.append(cached)
                else:
                    cached.request = partition
                    cached.mark()
        for forgotten in request.forgotten_topics_data:
            name = forgotten.topic_id if by_id else forgotten.topic
            for number in forgotten.partitions:
                cached = partitions.pop((name, number), None)
                if cached is not None:
                    cached.end()
                    cached.is_changed = False
        if request.forgotten_topics_data:
            self.changed = [cached for cached in self.changed if cached.is_changed]

    def sort_changed(self) -> None:
        """Sort the partitions to read by their turn: earlier ones get the space in the response."""
        self.changed.sort(key=position)

    def mark_all(self) -> None:
        """Make the next fetch read all partitions."""
        self.changed = list(self.partitions.values())
        for cached in self.changed:
            cached.is_changed = True

    def begin_waiting(self, read: list[tuple[CachedPartition, PartitionData]]) -> None:
        """Start to wait for changes after a read that found too little.

        The next read skips partitions without anything to send, unless they change before.
        """
        remaining: list[CachedPartition] = self.changed[len(read) :]
        has_session = self.session is not None
        for cached, answer in read:
            if not has_session:
                cached.go_last()
                if cached.partition is not None:
                    cached.begin(cached.partition)
            cached.seen_bytes = len(answer.records) if answer.records else 0
            if cached.is_exhausted and not (has_session and cached.has_news(answer)):
                cached.is_changed = False
            else:
                remaining.append(cached)
        self.changed = remaining

    def release(self) -> None:
        """Stop being notified by the partitions."""
        for cached in self.partitions.values():
            cached.end()


class FetchSession:
    """One client's fetch session."""

    __slots__ = (
        "broker_epoch",
        "by_id",
        "created_ms",
        "epoch",
        "fetched",
        "for_follower",
        "id",
        "is_closed",
        "reader",
        "size",
    )

    def __init__(
        self, session_id: int, fetched: FetchedPartitions, *, by_id: bool, broker_epoch: int, now_ms: int
    ) -> None:
        self.id = session_id
        self.fetched = fetched
        self.size = len(fetched.partitions)
        """The number of partitions at the last use, which eviction compares."""
        self.for_follower = fetched.replica >= 0
        self.broker_epoch = broker_epoch
        """The follower's broker epoch; -1 for a consumer, or if the request had none."""
        self.by_id = by_id
        self.epoch = 1
        self.created_ms = now_ms
        self.is_closed = False
        """Whether it was ended or evicted, possibly while one of its fetches waits."""
        self.reader: object = None
        """The last reader and its isolation: a partition may be exhausted for one reader but not for another."""


class SessionCache:
    """The fetch sessions of a broker."""

    def __init__(self, *, slots: int = 1000, eviction_ms: int = 120_000, random_id: Callable[[], int]) -> None:
        self.slots = slots
        self.eviction_ms = eviction_ms
        self._random_id = random_id
        """Returns a number from 1 to the largest int32."""
        self.sessions: dict[int, FetchSession] = {}
        """Sessions by id, least recently used first."""
        self.evictions = 0

    @property
    def partition_count(self) -> int:
        return sum(session.size for session in self.sessions.values())

    def begin(self, request: FetchRequest, version: int, now_ms: int) -> FetchedPartitions:
        """Return the partitions of a request. Raise if its session is unknown or at another epoch."""
        session_id, epoch = request.session_id, request.session_epoch
        by_id = version >= FIRST_WITH_IDS
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            if session_id != NO_SESSION:
                self._end(session_id)
            fetched = FetchedPartitions(replica_id(request, version), now_ms)
            partitions = fetched.partitions
            for topic in request.topics:
                name: TopicKey = topic.topic_id if by_id else topic.topic
                for partition in topic.partitions:
                    partitions[name, partition.partition] = CachedPartition(fetched, name, partition)
            fetched.changed = [*partitions.values()]
            return fetched
        session = self._at_epoch(session_id, epoch)
        fetched = session.fetched
        if fetched.waiting is not None:
            # Another fetch of this session still waits, but its client has abandoned it.
            waiting = fetched.waiting
            waiting.finish()
            waiting.expire()
            session = self._at_epoch(session_id, epoch)
        if session.by_id != by_id:
            raise FetchSessionTopicIdMismatch(f"fetch session {session_id} {'uses' if session.by_id else 'has no'} ids")
        if request.topics or request.forgotten_topics_data:
            fetched.update(request, by_id=by_id)
        session.epoch = 1 if epoch == MAX_INT32 else epoch + 1
        fetched.used_ms = now_ms
        session.size = len(fetched.partitions)
        del self.sessions[session_id]
        if not fetched.partitions:
            # An empty session is dropped, and the response has session id 0.
            return FetchedPartitions(fetched.replica, now_ms)
        self.sessions[session_id] = session
        return fetched

    def finish(
        self,
        fetched: FetchedPartitions,
        read: list[tuple[CachedPartition, PartitionData]],
        request: FetchRequest,
        version: int,
        now_ms: int,
    ) -> tuple[int, list[tuple[CachedPartition, PartitionData]]]:
        """Return the session id and the partitions of the response. A full fetch may open a session."""
        session = fetched.session
        if session is None:
            session_id = NO_SESSION
            if version >= _FIRST_WITH_SESSIONS and request.session_epoch == INITIAL_EPOCH:
                epoch = broker_epoch(request)
                session_id = self._open(fetched, by_id=version >= FIRST_WITH_IDS, broker_epoch=epoch, now_ms=now_ms)
            if session_id != NO_SESSION:
                for cached, answer in read:
                    cached.go_last()
                    cached.sent(answer)
                    if cached.partition is not None:
                        cached.begin(cached.partition)
            return session_id, read
        chosen: list[tuple[CachedPartition, PartitionData]] = []
        remaining: list[CachedPartition] = fetched.changed[len(read) :]
        for pair in read:
            cached, answer = pair
            if cached.has_news(answer):
                cached.sent(answer)
                chosen.append(pair)
                if answer.records:
                    # Partitions that had their turn go last, so that all get one.
                    cached.go_last()
            if cached.is_exhausted:
                cached.is_changed = False
                cached.seen_bytes = 0
            else:
                remaining.append(cached)
        fetched.changed = remaining
        return session.id, chosen

    def take_back(self, request: FetchRequest, response: FetchResponse) -> int:
        """Undo a response that was replaced with an empty one: send its partitions again. Return the session id."""
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._end(response.session_id)
            return NO_SESSION
        session = self.sessions.get(response.session_id)
        if session is not None:
            for topic in response.responses:
                name = topic.topic_id if session.by_id else topic.topic
                for answer in topic.partitions:
                    cached = session.fetched.partitions.get((name, answer.partition_index))
                    if cached is not None:
                        cached.sent_high_watermark = -1
                        cached.mark()
        return response.session_id

    def _at_epoch(self, session_id: int, epoch: int) -> FetchSession:
        session = self.sessions.get(session_id)
        if session is None:
            raise FetchSessionIdNotFound(f"there is no fetch session {session_id}")
        if session.epoch != epoch:
            raise InvalidFetchSessionEpoch(f"fetch session {session_id} is at epoch {session.epoch}, not {epoch}")
        return session

    def _open(self, fetched: FetchedPartitions, *, by_id: bool, broker_epoch: int, now_ms: int) -> int:
        if broker_epoch >= 0:
            self._end_sessions_before(fetched.replica, broker_epoch)
        if not self._make_room(len(fetched.partitions), fetched.replica >= 0, now_ms):
            return NO_SESSION
        session_id = self._random_id()
        while session_id in self.sessions or session_id == NO_SESSION:
            session_id = self._random_id()
        session = FetchSession(session_id, fetched, by_id=by_id, broker_epoch=broker_epoch, now_ms=now_ms)
        fetched.session = self.sessions[session_id] = session
        return session_id

    def _end_sessions_before(self, replica: int, broker_epoch: int) -> None:
        """End a follower's sessions from before its restart, which are unusable."""
        for session in [*self.sessions.values()]:
            if session.fetched.replica == replica and session.broker_epoch < broker_epoch:
                self._end(session.id)

    def _make_room(self, size: int, for_follower: bool, now_ms: int) -> bool:
        if len(self.sessions) < self.slots:
            return True
        if not self.slots:
            return False
        oldest = next(iter(self.sessions.values()))
        if now_ms - oldest.fetched.used_ms > self.eviction_ms:
            self._evict(oldest)
            return True
        # Followers may evict consumers. Otherwise a larger session may evict a smaller one that is not new.
        candidates = [
            session
            for session in self.sessions.values()
            if now_ms - session.created_ms > self.eviction_ms
            and not (session.for_follower and not for_follower)
            and (session.size < size or (for_follower and not session.for_follower))
        ]
        if not candidates:
            return False
        self._evict(min(candidates, key=lambda session: (session.for_follower, session.size, session.id)))
        return True

    def _evict(self, session: FetchSession) -> None:
        self._end(session.id)
        self.evictions += 1

    def _end(self, session_id: int) -> None:
        session = self.sessions.pop(session_id, None)
        if session is not None:
            session.is_closed = True
            if session.fetched.waiting is None:
                session.fetched.release()


def is_follower(request: FetchRequest, version: int) -> bool:
    """Return whether a follower fetches, not a consumer."""
    return replica_id(request, version) >= 0


def replica_id(request: FetchRequest, version: int) -> int:
    """Return the id of the broker that fetches; a negative number for consumers."""
    if version < 15:
        return request.replica_id
    return -1 if request.replica_state is None else request.replica_state.replica_id


def broker_epoch(request: FetchRequest) -> int:
    """Return the broker epoch of the follower that fetches; -1 for a consumer, or if the request has none."""
    return -1 if request.replica_state is None else request.replica_state.replica_epoch
