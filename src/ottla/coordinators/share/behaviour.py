"""The share coordinator as `coordinators/runtime` runs it.

Two timers run at intervals: one writes snapshots of share partitions that have not changed for long, the other deletes
the log before the oldest snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final

from ottla.coordinators.share.context import Context
from ottla.coordinators.share.coordinator import forget_topics, snapshot_cold
from ottla.coordinators.share.records import replay
from ottla.coordinators.share.state import TOPIC, ShareStates
from ottla.metadata.image.changes import Changes
from ottla.protocol.messages.records.share_state_records import SHARE_STATE_RECORDS
from ottla.storage.state_machine.decision import Decision, Ticket
from ottla.storage.state_machine.entries import Entry, Kinds, Marker

COLD: Final = "cold"
PRUNE: Final = "prune"


class ShareStatesBehaviour:
    """The rules of the share coordinator."""

    topic: str = TOPIC
    kinds: Kinds = SHARE_STATE_RECORDS

    def __init__(self, context: Callable[[], Context]) -> None:
        self._context = context

    def empty_state(self) -> ShareStates:
        return ShareStates()

    def replay(self, state: ShareStates, entries: Iterable[Entry], now_ms: int, offset: int = -1) -> ShareStates:
        limit = self._context().updates_per_snapshot
        for entry in entries:
            if not isinstance(entry, Marker):
                state = replay(state, entry, offset, limit)
        return state

    def on_loaded(self, state: ShareStates, now_ms: int) -> Decision[None]:
        context = self._context()
        return Decision((), None, timers=((COLD, now_ms + context.cold_ms), (PRUNE, now_ms + context.prune_ms)))

    def on_timer(self, state: ShareStates, key: Hashable, now_ms: int) -> Decision[None]:
        context = self._context()
        if key == COLD:
            return Decision(snapshot_cold(state, context), None, timers=((COLD, now_ms + context.cold_ms),))
        needed = state.first_needed_offset()
        answers: list[tuple[Ticket, Any]] = []
        if needed is not None:
            answers.append((context.prune, (next(iter(state.partitions)), needed)))
        return Decision((), None, answers=answers, timers=((PRUNE, now_ms + context.prune_ms),))

    def on_metadata_changed(self, state: ShareStates, changes: Changes) -> Decision[None] | None:
        records = forget_topics(state, (topic.id for topic in changes.topics_deleted))
        return Decision(records, None) if records else None

    def parked_tickets(self, state: ShareStates) -> Iterable[Ticket]:
        return ()
