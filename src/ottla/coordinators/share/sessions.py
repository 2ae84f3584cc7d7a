"""Share sessions: a member names its partitions once and then only changes. A member has one session with each broker.

The session epoch rises with each request, so that lost and repeated requests are detected. A session ends with the
final epoch, with a new initial request or with the connection. Then the records that the member acquired are released.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final, NamedTuple

from ottla.protocol.errors import (
    InvalidRequest,
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    ShareSessionNotFound,
)
from ottla.protocol.wire.batch import MAX_INT32

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1

TopicIdPartition = tuple[bytes, int]
"""A topic id and a partition number."""


class SessionKey(NamedTuple):
    """The member that a session belongs to."""

    group_id: str
    member_id: str


class SessionPartition:
    """A partition in a session."""

    __slots__ = ("must_report", "name")

    def __init__(self, name: str | None, *, must_report: bool) -> None:
        self.name = name
        """The topic name when the member added the partition; None if the topic did not exist."""
        self.must_report = must_report
        """Whether the next response must include the partition even without records."""


class Session:
    """The partitions that one member reads on this broker."""

    __slots__ = ("client", "epoch", "key", "partitions")

    def __init__(self, key: SessionKey, partitions: dict[TopicIdPartition, SessionPartition], client: Hashable) -> None:
        self.key = key
        self.partitions = partitions
        self.client = client
        self.epoch = 1

    def update(self, added: Iterable[tuple[TopicIdPartition, str | None]], removed: Iterable[TopicIdPartition]) -> None:
        """Apply the partitions that a request adds and removes."""
        for topic_partition, name in added:
            if topic_partition not in self.partitions:
                self.partitions[topic_partition] = SessionPartition(name, must_report=True)
        for topic_partition in removed:
            self.partitions.pop(topic_partition, None)

    def advance_epoch(self) -> None:
        """Move to the next epoch, which wraps around to 1."""
        self.epoch = 1 if self.epoch == MAX_INT32 else self.epoch + 1

    def must_report(self, topic_partition: TopicIdPartition, *, has_records: bool, has_error: bool) -> bool:
        """Whether a response must include a partition. One with records moves to the end, to give others their turn."""
        partition = self.partitions.get(topic_partition)
        if partition is None:
            return True
        is_reported = has_records or has_error or partition.must_report
        partition.must_report = has_error
        if has_records:
            self.partitions[topic_partition] = self.partitions.pop(topic_partition)
        return is_reported


class _Connection:
    """The session that began on a connection."""

    __slots__ = ("is_stale", "key")

    def __init__(self, key: SessionKey) -> None:
        self.key = key
        self.is_stale = False


class ShareSessions:
    """The share sessions of a broker."""

    def __init__(self) -> None:
        self.sessions: dict[SessionKey, Session] = {}
        self._connections: dict[Hashable, _Connection] = {}

    def begin(
        self,
        key: SessionKey,
        added: Iterable[tuple[TopicIdPartition, str | None]],
        client: Hashable,
        *,
        has_acks: bool,
        slots: int,
    ) -> Session:
        """Begin a session; it replaces the one that the member may have."""
        if has_acks:
            raise InvalidRequest("the initial request of a share session has acknowledgements")
        self.remove(key)
        if len(self.sessions) >= slots:
            raise ShareSessionLimitReached(f"this broker has {len(self.sessions)} share sessions, the maximum")
        partitions = {topic_partition: SessionPartition(name, must_report=False) for topic_partition, name in added}
        session = self.sessions[key] = Session(key, partitions, client)
        self._connections[client] = _Connection(key)
        return session

    def find(self, key: SessionKey, epoch: int) -> Session:
        """Return the session of a request; raise unless the epoch matches. The final epoch always does."""
        session = self.sessions.get(key)
        if session is None:
            raise ShareSessionNotFound(f"member {key.member_id} of group {key.group_id} has no share session")
        if epoch not in (FINAL_EPOCH, session.epoch):
            raise InvalidShareSessionEpoch(
                f"the share session of member {key.member_id} is at epoch {session.epoch}, not {epoch}"
            )
        return session

    def remove(self, key: SessionKey) -> Session | None:
        """End a session and return it; None if it does not exist."""
        session = self.sessions.pop(key, None)
        if session is not None:
            connection = self._connections.get(session.client)
            if connection is not None:
                connection.is_stale = True
        return session

    def on_disconnect(self, client: Hashable) -> tuple[SessionKey | None, str | None]:
        """Handle the end of a connection. Return the session that ends, and its group if no other session has it."""
        connection = self._connections.pop(client, None)
        if connection is None:
            return None, None
        group_id = connection.key.group_id
        ended = None if connection.is_stale or connection.key not in self.sessions else connection.key
        others = any(key.group_id == group_id for key in self.sessions if key != ended)
        return ended, None if others else group_id

    def clear(self) -> None:
        self.sessions.clear()
