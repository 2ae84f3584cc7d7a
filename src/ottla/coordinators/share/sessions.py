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

Where = tuple[bytes, int]
"""Topic id and partition."""


class SessionKey(NamedTuple):
    """Whose session it is."""

    group_id: str
    member_id: str


class Target:
    """A partition of a session."""

    __slots__ = ("must_tell", "name")

    def __init__(self, name: str | None, *, must_tell: bool) -> None:
        self.name = name
        """The topic's, as it was when the member named the partition; None if there was none."""
        self.must_tell = must_tell
        """Whether the next answer tells of it, also if there is nothing new."""


class Session:
    """What one member reads here."""

    __slots__ = ("client", "epoch", "key", "targets")

    def __init__(self, key: SessionKey, targets: dict[Where, Target], client: Hashable) -> None:
        self.key = key
        self.targets = targets
        self.client = client
        self.epoch = 1

    def update(self, wanted: Iterable[tuple[Where, str | None]], forgotten: Iterable[Where]) -> None:
        """Take in what a request adds and drops."""
        for where, name in wanted:
            if where not in self.targets:
                self.targets[where] = Target(name, must_tell=True)
        for where in forgotten:
            self.targets.pop(where, None)

    def go_on(self) -> None:
        self.epoch = 1 if self.epoch == MAX_INT32 else self.epoch + 1

    def must_tell(self, where: Where, *, has_records: bool, has_error: bool) -> bool:
        """Whether an answer must tell of a partition. One that brought records goes to the end: all get their turn."""
        target = self.targets.get(where)
        if target is None:
            return True
        tells = has_records or has_error or target.must_tell
        target.must_tell = has_error
        if has_records:
            self.targets[where] = self.targets.pop(where)
        return tells


class _Link:
    """The session that was begun on a connection."""

    __slots__ = ("is_stale", "key")

    def __init__(self, key: SessionKey) -> None:
        self.key = key
        self.is_stale = False


class ShareSessions:
    """All share sessions of a broker."""

    def __init__(self) -> None:
        self.sessions: dict[SessionKey, Session] = {}
        self._links: dict[Hashable, _Link] = {}

    def begin(
        self,
        key: SessionKey,
        wanted: Iterable[tuple[Where, str | None]],
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
        targets = {where: Target(name, must_tell=False) for where, name in wanted}
        session = self.sessions[key] = Session(key, targets, client)
        self._links[client] = _Link(key)
        return session

    def at(self, key: SessionKey, epoch: int) -> Session:
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

    def disconnected(self, client: Hashable) -> tuple[SessionKey | None, str | None]:
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
