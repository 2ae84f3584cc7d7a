"""Incremental fetch sessions (KIP-227): a client names its partitions once, and then only what changes.

The broker remembers a session's partitions with what it told the client of each, and answers only with those that have
news. Sessions are numbered; their epoch rises with each request, so that a request that was lost or repeated is
noticed. There is room for so many sessions: a new one takes the place of one that was idle, or is smaller, or serves a
consumer where the new one serves a follower. Who gets no session is answered in full each time.

A partition is known by its topic's id from v13 on, by its topic's name before: never by both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from ottla.errors import FetchSessionIdNotFound, FetchSessionTopicIdMismatch, InvalidFetchSessionEpoch
from ottla.messages.fetch import FetchPartition, FetchRequest, PartitionData
from ottla.wire.batch import MAX_INT32

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1

TopicKey = str | bytes
Key = tuple[TopicKey, int]
"""Topic name or id, and partition."""


class Target:
    """One partition of a fetch, as the client last described it, and what it was last told."""

    __slots__ = ("name", "request", "sent_high_watermark", "sent_log_start", "topic")

    def __init__(self, topic: TopicKey, request: FetchPartition) -> None:
        self.topic = topic
        self.request = request
        self.name: str | None = None
        """The topic's name, once it was found by its id."""
        self.sent_high_watermark = -1
        self.sent_log_start = -1

    @property
    def key(self) -> Key:
        return self.topic, self.request.partition

    def is_behind(self, answer: PartitionData) -> bool:
        """Whether an answer tells of another high watermark than the client knows."""
        return answer.high_watermark != self.sent_high_watermark

    def has_news(self, answer: PartitionData) -> bool:
        """Whether an answer tells the client anything; remembers what it is told."""
        records = answer.records
        news = (
            (records is not None and len(records) > 0)
            or self.is_behind(answer)
            or answer.log_start_offset != self.sent_log_start
            or answer.preferred_read_replica >= 0
            or answer.diverging_epoch is not None
        )
        self.sent_high_watermark = answer.high_watermark
        self.sent_log_start = answer.log_start_offset
        if answer.error_code:
            # Once the error is over, the client is to hear of the partition again.
            self.sent_high_watermark = -1
            return True
        return news


class Session:
    """What one client fetches."""

    __slots__ = ("by_id", "created_ms", "epoch", "for_follower", "id", "last_used_ms", "size", "targets")

    def __init__(self, session_id: int, targets: dict[Key, Target], *, for_follower: bool, by_id: bool, now_ms: int):
        self.id = session_id
        self.targets = targets
        self.size = len(targets)
        """As counted when the session was last used: what eviction goes by."""
        self.for_follower = for_follower
        self.by_id = by_id
        self.epoch = 1
        self.created_ms = self.last_used_ms = now_ms


class Fetch:
    """One request's partitions, and how its answer is to be put together."""

    __slots__ = ("session", "targets")

    def __init__(self, targets: Iterable[Target], session: Session | None) -> None:
        self.targets: list[Target] = list(targets)
        self.session = session
        """The session that the request goes on with; None for a full request."""

    def select(self, answers: list[PartitionData]) -> Iterator[tuple[Target, PartitionData]]:
        """The answers that are worth sending, given in the order of the targets."""
        session = self.session
        if session is None:
            yield from zip(self.targets, answers, strict=True)
            return
        for target, answer in zip(self.targets, answers, strict=True):
            if target.has_news(answer):
                if answer.records is not None and len(answer.records):
                    # Partitions that had their turn go to the end, so that all get theirs.
                    moved = session.targets.pop(target.key, None)
                    if moved is not None:
                        session.targets[target.key] = moved
                yield target, answer


class SessionCache:
    """All sessions of a broker."""

    def __init__(self, *, slots: int = 1000, eviction_ms: int = 120_000, random_id: Callable[[], int]) -> None:
        self.slots = slots
        self.eviction_ms = eviction_ms
        self._random_id = random_id
        """A number from 1 to the largest int32."""
        self.sessions: dict[int, Session] = {}
        """Least recently used first."""
        self.evictions = 0

    @property
    def partition_count(self) -> int:
        return sum(session.size for session in self.sessions.values())

    def begin(self, request: FetchRequest, version: int, now_ms: int) -> Fetch:
        """The partitions that a request is about; raises if its session is not known or not at that epoch."""
        session_id, epoch = request.session_id, request.session_epoch
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            if session_id != NO_SESSION:
                self.sessions.pop(session_id, None)
            return Fetch(_targets(request, by_id=version >= 13), None)
        session = self.sessions.get(session_id)
        if session is None:
            raise FetchSessionIdNotFound(f"there is no fetch session {session_id}")
        if session.epoch != epoch:
            raise InvalidFetchSessionEpoch(f"fetch session {session_id} is at epoch {session.epoch}, not {epoch}")
        by_id = version >= 13
        if session.by_id != by_id:
            raise FetchSessionTopicIdMismatch(f"fetch session {session_id} {'uses' if session.by_id else 'has no'} ids")
        if request.topics or request.forgotten_topics_data:
            _update(session, request, by_id=by_id)
        session.epoch = 1 if session.epoch == MAX_INT32 else session.epoch + 1
        session.last_used_ms = now_ms
        session.size = len(session.targets)
        del self.sessions[session_id]
        if not session.targets:
            # Nothing is left to remember: the client is told so by a session id of nought.
            return Fetch((), None)
        self.sessions[session_id] = session
        return Fetch(session.targets.values(), session)

    def finish(
        self,
        fetch: Fetch,
        request: FetchRequest,
        version: int,
        answers: list[PartitionData],
        now_ms: int,
    ) -> tuple[int, list[tuple[Target, PartitionData]]]:
        """The session id of the answer, and the partitions in it; a full request may get a session by this."""
        if fetch.session is not None:
            return fetch.session.id, list(fetch.select(answers))
        session_id = NO_SESSION
        if version >= 7 and request.session_epoch == INITIAL_EPOCH:
            follower = is_follower(request, version)
            session_id = self._open(fetch, for_follower=follower, by_id=version >= 13, now_ms=now_ms)
        chosen = list(zip(fetch.targets, answers, strict=True))
        if session_id != NO_SESSION:
            for target, answer in chosen:
                target.has_news(answer)
        return session_id, chosen

    def take_back(self, request: FetchRequest, session_id: int) -> int:
        """An answer is not sent after all, but an empty one: what it told counts as untold. Returns its session."""
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self.sessions.pop(session_id, None)
            return NO_SESSION
        session = self.sessions.get(session_id)
        if session is not None:
            for target in session.targets.values():
                target.sent_high_watermark = -1
        return session_id

    def _open(self, fetch: Fetch, *, for_follower: bool, by_id: bool, now_ms: int) -> int:
        if not self._make_room(len(fetch.targets), for_follower, now_ms):
            return NO_SESSION
        session_id = self._random_id()
        while session_id in self.sessions or session_id == NO_SESSION:
            session_id = self._random_id()
        targets = {target.key: target for target in fetch.targets}
        self.sessions[session_id] = Session(session_id, targets, for_follower=for_follower, by_id=by_id, now_ms=now_ms)
        return session_id

    def _make_room(self, size: int, for_follower: bool, now_ms: int) -> bool:
        if len(self.sessions) < self.slots:
            return True
        if not self.slots:
            return False
        oldest = next(iter(self.sessions.values()))
        if now_ms - oldest.last_used_ms > self.eviction_ms:
            self._evict(oldest)
            return True
        # Followers may push out consumers; among equals the larger may push out the smaller, if that has lived a while.
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

    def _evict(self, session: Session) -> None:
        del self.sessions[session.id]
        self.evictions += 1


def is_follower(request: FetchRequest, version: int) -> bool:
    """Whether a replica fetches, and not a consumer."""
    return replica_id(request, version) >= 0


def replica_id(request: FetchRequest, version: int) -> int:
    """Which broker fetches, or a negative number for consumers."""
    if version < 15:
        return request.replica_id
    return -1 if request.replica_state is None else request.replica_state.replica_id


def _targets(request: FetchRequest, *, by_id: bool) -> Iterable[Target]:
    """The partitions of a request. One that is named twice is fetched once, as it was named last."""
    targets: dict[Key, Target] = {}
    for topic in request.topics:
        name: TopicKey = topic.topic_id if by_id else topic.topic
        for partition in topic.partitions:
            targets[name, partition.partition] = Target(name, partition)
    return targets.values()


def _update(session: Session, request: FetchRequest, *, by_id: bool) -> None:
    for topic in request.topics:
        name: TopicKey = topic.topic_id if by_id else topic.topic
        for partition in topic.partitions:
            key = (name, partition.partition)
            known = session.targets.get(key)
            if known is None:
                session.targets[key] = Target(name, partition)
            else:
                known.request = partition
    for forgotten in request.forgotten_topics_data:
        name = forgotten.topic_id if by_id else forgotten.topic
        for number in forgotten.partitions:
            session.targets.pop((name, number), None)
