"""What the active controller remembers of brokers and does not write down: when they were last heard of, and how far.

A new active controller starts with an empty memory and gives every unfenced broker a whole session (`activate`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ottla.metadata.image.image import Image

NEVER = -1


@dataclass(slots=True)
class _Session:
    """One life of a broker, by its epoch."""

    epoch: int
    expires_ms: int | None = None
    """None before the first heartbeat and when the session has ended."""
    metadata_offset: int = NEVER
    registration_offset: int = NEVER
    """The offset of the registration; a broker that has read it knows itself registered."""
    shutdown_offset: int = NEVER
    """The end of the records that began its controlled shutdown; NEVER if none has begun."""


class Heartbeats:
    """Sessions of brokers. The times are those of any clock that does not go back."""

    def __init__(self, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        self._sessions: dict[int, _Session] = {}

    def activate(self, image: Image, now_ms: int) -> None:
        """Begin with the brokers that are in service. Their own heartbeats will tell the rest."""
        self._sessions = {
            broker.id: _Session(broker.epoch, now_ms + self.session_timeout_ms) for broker in image.alive_brokers
        }

    def record_registration(self, broker_id: int, epoch: int, offset: int) -> None:
        """A broker registers with the record at an offset. Its session begins with its first heartbeat, so that one
        which dies before that does not block its next life."""
        self._session(broker_id, epoch).registration_offset = offset

    def record_heartbeat(self, broker_id: int, epoch: int, metadata_offset: int, now_ms: int) -> None:
        """A heartbeat came, from a broker that has read the metadata up to an offset."""
        session = self._session(broker_id, epoch)
        session.expires_ms = now_ms + self.session_timeout_ms
        session.metadata_offset = metadata_offset

    def shorten_session(self, broker_id: int, epoch: int, now_ms: int, *, grace_ms: int) -> None:
        """A broker's connection broke, most likely because it died: unless it is heard of again soon, its session
        ends. A broker that only reconnects sends a heartbeat at once."""
        session = self._sessions.get(broker_id)
        if session is not None and session.epoch == epoch and session.expires_ms is not None:
            session.expires_ms = min(session.expires_ms, now_ms + grace_ms)

    def has_session(self, broker_id: int, epoch: int, now_ms: int) -> bool:
        """Whether this life of a broker was heard of within the session's time."""
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != epoch or session.expires_ms is None:
            return False
        return session.expires_ms >= now_ms

    def registration_offset(self, broker_id: int, epoch: int) -> int:
        """Where the broker's registration is. After a change of controllers that is not known but for the epoch, which
        is where its first batch began."""
        session = self._sessions.get(broker_id)
        known = session is not None and session.epoch == epoch and session.registration_offset != NEVER
        return session.registration_offset if known and session is not None else epoch

    def is_shutting_down(self, broker_id: int, epoch: int) -> bool:
        return self.shutdown_offset(broker_id, epoch) != NEVER

    @property
    def silent_brokers(self) -> list[int]:
        """The brokers that are taken for alive, and were not heard of since this controller became active."""
        return [
            broker_id
            for broker_id, session in self._sessions.items()
            if session.expires_ms is not None and session.metadata_offset == NEVER
        ]

    def shutdown_offset(self, broker_id: int, epoch: int) -> int:
        session = self._sessions.get(broker_id)
        return session.shutdown_offset if session is not None and session.epoch == epoch else NEVER

    def record_controlled_shutdown(self, broker_id: int, epoch: int, offset: int) -> None:
        """A controlled shutdown began with records up to an offset; its first offset stays."""
        session = self._session(broker_id, epoch)
        if session.shutdown_offset == NEVER:
            session.shutdown_offset = offset

    def clear_controlled_shutdown(self, broker_id: int) -> None:
        """A fenced broker is not shutting down any more: it may go at once."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.shutdown_offset = NEVER

    def end_session(self, broker_id: int) -> None:
        """A broker was let go, or not heard of for too long; where it is registered is still known."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.expires_ms = None
            session.metadata_offset = session.shutdown_offset = NEVER

    def remove(self, broker_id: int) -> None:
        """A broker is not registered any more."""
        self._sessions.pop(broker_id, None)

    def lowest_active_offset(self, image: Image) -> int | None:
        """How far the metadata was read by the brokers in service that are to stay; None if there are none."""
        offsets = [
            session.metadata_offset
            for broker_id, session in self._sessions.items()
            if image.is_alive(broker_id) and session.shutdown_offset == NEVER
        ]
        return min(offsets, default=None)

    def expired_brokers(self, now_ms: int) -> list[int]:
        """The brokers whose sessions have ended, the longest unheard first."""
        return [broker_id for expires_ms, broker_id in sorted(self._ends()) if expires_ms < now_ms]

    def _ends(self) -> Iterator[tuple[int, int]]:
        for broker_id, session in self._sessions.items():
            if session.expires_ms is not None:
                yield session.expires_ms, broker_id

    def _session(self, broker_id: int, epoch: int) -> _Session:
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != epoch:
            session = self._sessions[broker_id] = _Session(epoch)
        return session
