"""The group coordinator as `coordinators/runtime` runs it: tables name the rule for each record and each timer."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, Final

from ottla.coordinators.groups.classic import timers as classic_timers
from ottla.coordinators.groups.classic.records import replay_group
from ottla.coordinators.groups.consumer import metadata_changes as consumer_changes
from ottla.coordinators.groups.consumer import timers as consumer_timers
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.consumer.replaying import REPLAY as CONSUMER_REPLAY
from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.expiry import deleted_topic_tombstones, expire_offsets, next_expiry
from ottla.coordinators.groups.offset_records import replay_marker, replay_offset
from ottla.coordinators.groups.replayed import Replay
from ottla.coordinators.groups.share import metadata_changes as share_changes
from ottla.coordinators.groups.share import timers as share_timers
from ottla.coordinators.groups.share.group import ShareGroup
from ottla.coordinators.groups.share.replaying import REPLAY as SHARE_REPLAY
from ottla.coordinators.groups.state import GroupsState
from ottla.coordinators.groups.streams import metadata_changes as streams_changes
from ottla.coordinators.groups.streams import timers as streams_timers
from ottla.coordinators.groups.streams.group import StreamsGroup
from ottla.coordinators.groups.streams.replaying import REPLAY as STREAMS_REPLAY
from ottla.coordinators.groups.timers import TimerKey, TimerKind
from ottla.metadata.image.changes import Changes
from ottla.protocol.messages.records.consumer_group_records import CONSUMER_GROUP_RECORDS
from ottla.protocol.messages.records.group_records import (
    GROUP_RECORDS,
    GroupMetadataKey,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
)
from ottla.protocol.messages.records.share_group_records import SHARE_GROUP_RECORDS
from ottla.protocol.messages.records.streams_group_records import STREAMS_GROUP_RECORDS
from ottla.storage.state_machine.decision import Decision, Ticket
from ottla.storage.state_machine.entries import Entry, Marker

Expire = Callable[[GroupsState, TimerKey, Context], Decision[Any]]
"""Decides what to do when a timer expires. The state may have changed since the timer was set."""

REPLAY: Final[Mapping[type, Replay]] = {
    LegacyOffsetCommitKey: replay_offset,
    OffsetCommitKey: replay_offset,
    GroupMetadataKey: replay_group,
    **CONSUMER_REPLAY,
    **SHARE_REPLAY,
    **STREAMS_REPLAY,
}
"""The replay function of each record, by the class of its key."""


def _expire_session(state: GroupsState, key: TimerKey, context: Context) -> Decision[Any]:
    """Expire a member's session by the rules of the group that it is in now."""
    group = state.groups.get(key.group)
    if isinstance(group, ConsumerGroup):
        return consumer_timers.expire_member(state, key, context)
    if isinstance(group, ShareGroup):
        return share_timers.expire_member(group, key, context)
    if isinstance(group, StreamsGroup):
        return streams_timers.expire_member(state, key, context)
    return classic_timers.expire_session(state, key, context)


EXPIRE_BY_TIMER: Final[Mapping[str, Expire]] = {
    TimerKind.OFFSET_EXPIRY: expire_offsets,
    **classic_timers.EXPIRE_BY_TIMER,
    **consumer_timers.EXPIRE_BY_TIMER,
    **streams_timers.EXPIRE_BY_TIMER,
    TimerKind.SESSION: _expire_session,
}
"""The rule for each kind of timer."""


class GroupsBehaviour:
    """The rules of the group coordinator. `context` returns the inputs of decisions that no request causes."""

    topic = "__consumer_offsets"
    kinds: Mapping[int, tuple[type, type]] = {
        **GROUP_RECORDS,
        **CONSUMER_GROUP_RECORDS,
        **SHARE_GROUP_RECORDS,
        **STREAMS_GROUP_RECORDS,
    }

    def __init__(self, context: Callable[[], Context]) -> None:
        self._context = context

    def empty_state(self) -> GroupsState:
        return GroupsState()

    def replay(self, state: GroupsState, entries: Iterable[Entry], now_ms: int, offset: int = -1) -> GroupsState:
        for entry in entries:
            if isinstance(entry, Marker):
                state = replay_marker(state, entry)
            else:
                replay = REPLAY.get(type(entry.key))
                if replay is not None:
                    state = replay(state, entry, now_ms)
        return state

    def on_loaded(self, state: GroupsState, now_ms: int) -> Decision[None]:
        context = self._context()
        decision = classic_timers.on_loaded(state, context)
        return Decision(
            decision.records,
            None,
            state=decision.state,
            timers=[
                *decision.timers,
                *consumer_timers.timers_on_loaded(state, context),
                *share_timers.timers_on_loaded(state, context),
                *streams_timers.timers_on_loaded(state, context),
                next_expiry(context),
            ],
        )

    def on_timer(self, state: GroupsState, key: Hashable, now_ms: int) -> Decision[Any]:
        assert isinstance(key, TimerKey)
        return EXPIRE_BY_TIMER[key.kind](state, key, self._context())

    def on_metadata_changed(self, state: GroupsState, changes: Changes) -> Decision[None] | None:
        changed = changes.topics_with_new_assignments
        if not changed:
            return None
        marked = consumer_changes.mark_groups_for_refresh(state, changes)
        marked = streams_changes.mark_groups_for_refresh(marked, changed)
        marked = share_changes.mark_groups_for_refresh(marked, changed)
        records = [
            *deleted_topic_tombstones(marked, changes.topics_deleted),
            *share_changes.deleted_topic_records(marked, changes),
        ]
        if not records and marked is state:
            return None
        return Decision(records, None, state=marked)

    def parked_tickets(self, state: GroupsState) -> Iterator[Ticket]:
        for group in state.groups.values():
            yield from group.parked_tickets()
