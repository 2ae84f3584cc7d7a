"""Share sessions: a member names its partitions once, and then only what changes; each broker has one of each member.

The epoch rises with every request, so that one that was lost or repeated is noticed. A session ends with the final
epoch, with a new first request, or with the connection; then what the member had acquired is taken back.
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
"""Topic id and partition."""


class SessionKey(NamedTuple):
    """Whose session it is."""

    group_id: str
    member_id: str


class SessionPartition:
    """A partition of a session."""

    __slots__ = ("must_report", "name")

    def __init__(self, name: str | None, *, must_report: bool) -> None:
        self.name = name
        """The topic's, as it was when the member named the partition; None if there was none."""
        self.must_report = must_report
        """Whether the next answer tells of it, also if there is nothing new."""


class Session:
    """What one member reads here."""

    __slots__ = ("client", "epoch", "key", "partitions")

    def __init__(self, key: SessionKey, partitions: dict[TopicIdPartition, SessionPartition], client: Hashable) -> None:
        self.key = key
        self.partitions = partitions
        self.client = client
        self.epoch = 1

    def update(
        self, wanted: Iterable[tuple[TopicIdPartition, str | None]], forgotten: Iterable[TopicIdPartition]
    ) -> None:
        """Take in what a request adds and drops."""
        for where, name in wanted:
            if where not in self.partitions:
                self.partitions[where] = SessionPartition(name, must_report=True)
        for where in forgotten:
            self.partitions.pop(where, None)

    def advance_epoch(self) -> None:
        self.epoch = 1 if self.epoch == MAX_INT32 else self.epoch + 1

    def must_report(self, where: TopicIdPartition, *, has_records: bool, has_error: bool) -> bool:
        """Whether an answer must tell of a partition. One that brought records goes to the end: all get their turn."""
        target = self.partitions.get(where)
        if target is None:
            return True
        tells = has_records or has_error or target.must_report
        target.must_report = has_error
        if has_records:
            self.partitions[where] = self.partitions.pop(where)
        return tells


class _Connection:
    """The session that was begun on a connection."""

    __slots__ = ("is_stale", "key")

    def __init__(self, key: SessionKey) -> None:
        self.key = key
        self.is_stale = False


class ShareSessions:
    """All share sessions of a broker."""

    def __init__(self) -> None:
        self.sessions: dict[SessionKey, Session] = {}
        self._links: dict[Hashable, _Connection] = {}

    def begin(
        self,
        key: SessionKey,
        wanted: Iterable[tuple[TopicIdPartition, str | None]],
        client: Hashable,
        *,
        has_acks: bool,
        slots: int,
    ) -> Session:
        """A new session, in place of the one that there may be."""
        if has_acks:
            raise InvalidRequest("a first request acknowledges nothing")
        self.remove(key)
        if len(self.sessions) >= slots:
            raise ShareSessionLimitReached("there are too many share sessions")
        partitions = {where: SessionPartition(name, must_report=False) for where, name in wanted}
        session = self.sessions[key] = Session(key, partitions, client)
        self._links[client] = _Connection(key)
        return session

    def find(self, key: SessionKey, epoch: int) -> Session:
        """The session of a request, if it is at that epoch; the final one is always right."""
        session = self.sessions.get(key)
        if session is None:
            raise ShareSessionNotFound(f"{key.member_id} has no share session of {key.group_id}")
        if epoch not in (FINAL_EPOCH, session.epoch):
            raise InvalidShareSessionEpoch(f"{key.member_id} is at epoch {session.epoch}, not {epoch}")
        return session

    def remove(self, key: SessionKey) -> Session | None:
        """End a session; None if there is none."""
        session = self.sessions.pop(key, None)
        if session is not None:
            link = self._links.get(session.client)
            if link is not None:
                link.is_stale = True
        return session

    def on_disconnect(self, client: Hashable) -> tuple[SessionKey | None, str | None]:
        """A connection ended: the session that ends with it, and the group that nobody here reads for any more."""
        link = self._links.pop(client, None)
        if link is None:
            return None, None
        group_id = link.key.group_id
        ended = None if link.is_stale or link.key not in self.sessions else link.key
        others = any(key.group_id == group_id for key in self.sessions if key != ended)
        return ended, None if others else group_id

    def clear(self) -> None:
        self.sessions.clear()
