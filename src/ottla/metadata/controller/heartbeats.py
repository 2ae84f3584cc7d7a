"""Broker sessions, which only the active controller keeps, in memory: last heartbeat and applied offset.

A new active controller gives every unfenced broker a full session (`activate`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ottla.metadata.image.image import Image

NEVER = -1


@dataclass(slots=True)
class _Session:
    """The session of one incarnation of a broker, identified by its epoch."""

    epoch: int
    expires_ms: int | None = None
    """None before the first heartbeat and after the session has ended."""
    metadata_offset: int = NEVER
    registration_offset: int = NEVER
    """The offset of the registration record."""
    shutdown_offset: int = NEVER
    """The last offset of the records that started its controlled shutdown; NEVER if none has started."""


class Heartbeats:
    """Sessions of brokers. All times are of one monotonic clock."""

    def __init__(self, session_timeout_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        self._sessions: dict[int, _Session] = {}

    def activate(self, image: Image, now_ms: int) -> None:
        """Start a session for every unfenced broker; their heartbeats will report their offsets."""
        self._sessions = {
            broker.id: _Session(broker.epoch, now_ms + self.session_timeout_ms) for broker in image.alive_brokers
        }

    def record_registration(self, broker_id: int, epoch: int, offset: int) -> None:
        """Record a registration and its offset.

        The session starts with the first heartbeat, so that a broker that dies earlier does not block its next
        incarnation.
        """
        self._session(broker_id, epoch).registration_offset = offset

    def record_heartbeat(self, broker_id: int, epoch: int, metadata_offset: int, now_ms: int) -> None:
        """Extend the session, and record up to which offset the broker has applied the metadata."""
        session = self._session(broker_id, epoch)
        session.expires_ms = now_ms + self.session_timeout_ms
        session.metadata_offset = metadata_offset

    def shorten_session(self, broker_id: int, epoch: int, now_ms: int, *, grace_ms: int) -> None:
        """Let the session of a disconnected broker end after `grace_ms`, unless a heartbeat arrives before.

        A broker that is alive reconnects and sends a heartbeat at once.
        """
        session = self._sessions.get(broker_id)
        if session is not None and session.epoch == epoch and session.expires_ms is not None:
            session.expires_ms = min(session.expires_ms, now_ms + grace_ms)

    def has_session(self, broker_id: int, epoch: int, now_ms: int) -> bool:
        """Whether this incarnation of a broker has an unexpired session."""
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != epoch or session.expires_ms is None:
            return False
        return session.expires_ms >= now_ms

    def registration_offset(self, broker_id: int, epoch: int) -> int:
        """Return the offset of the broker's registration.

        A new controller does not know it and returns the epoch, which is the offset where the registration's batch
        starts.
        """
        session = self._sessions.get(broker_id)
        is_known = session is not None and session.epoch == epoch and session.registration_offset != NEVER
        return session.registration_offset if is_known and session is not None else epoch

    def is_shutting_down(self, broker_id: int, epoch: int) -> bool:
        return self.shutdown_offset(broker_id, epoch) != NEVER

    @property
    def silent_brokers(self) -> list[int]:
        """Brokers with a session that have sent no heartbeat since this controller became active."""
        return [
            broker_id
            for broker_id, session in self._sessions.items()
            if session.expires_ms is not None and session.metadata_offset == NEVER
        ]

    def shutdown_offset(self, broker_id: int, epoch: int) -> int:
        session = self._sessions.get(broker_id)
        return session.shutdown_offset if session is not None and session.epoch == epoch else NEVER

    def record_controlled_shutdown(self, broker_id: int, epoch: int, offset: int) -> None:
        """Record the start of a controlled shutdown. Later calls keep the first offset."""
        session = self._session(broker_id, epoch)
        if session.shutdown_offset == NEVER:
            session.shutdown_offset = offset

    def clear_controlled_shutdown(self, broker_id: int) -> None:
        """End a controlled shutdown, because the broker is fenced and may stop at once."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.shutdown_offset = NEVER

    def end_session(self, broker_id: int) -> None:
        """End a session. The registration offset is kept."""
        session = self._sessions.get(broker_id)
        if session is not None:
            session.expires_ms = None
            session.metadata_offset = session.shutdown_offset = NEVER

    def remove(self, broker_id: int) -> None:
        """Remove a broker that is no longer registered."""
        self._sessions.pop(broker_id, None)

    def lowest_active_offset(self, image: Image) -> int | None:
        """Return the lowest applied offset of the unfenced brokers that are not shutting down, or None."""
        offsets = [
            session.metadata_offset
            for broker_id, session in self._sessions.items()
            if image.is_alive(broker_id) and session.shutdown_offset == NEVER
        ]
        return min(offsets, default=None)

    def expired_brokers(self, now_ms: int) -> list[int]:
        """Return the brokers with expired sessions, the first to expire first."""
        return [broker_id for expires_ms, broker_id in sorted(self._expiry_times()) if expires_ms < now_ms]

    def _expiry_times(self) -> Iterator[tuple[int, int]]:
        for broker_id, session in self._sessions.items():
            if session.expires_ms is not None:
                yield session.expires_ms, broker_id

    def _session(self, broker_id: int, epoch: int) -> _Session:
        session = self._sessions.get(broker_id)
        if session is None or session.epoch != epoch:
            session = self._sessions[broker_id] = _Session(epoch)
        return session
