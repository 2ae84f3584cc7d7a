"""The group coordinator as `coordinators/runtime/` runs it: tables say whose rules each record and each
timer follow.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, Final

from ottla.coordinators.groups.classic.records import replay_group
from ottla.coordinators.groups.classic.timers import EXPIRED as CLASSIC_EXPIRED
from ottla.coordinators.groups.classic.timers import take_over
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.consumer.metadata_changes import notice
from ottla.coordinators.groups.consumer.replaying import REPLAY as CONSUMER_REPLAY
from ottla.coordinators.groups.consumer.timers import EXPIRED as CONSUMER_EXPIRED
from ottla.coordinators.groups.consumer.timers import expired
from ottla.coordinators.groups.consumer.timers import take_over as take_over_consumers
from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.expiry import expire_offsets, forget_topics, next_expiry
from ottla.coordinators.groups.offset_records import replay_marker, replay_offset
from ottla.coordinators.groups.replayed import Replay
from ottla.coordinators.groups.share import metadata_changes as share_published
from ottla.coordinators.groups.share import timers as share_timers
from ottla.coordinators.groups.share.group import ShareGroup
from ottla.coordinators.groups.share.replaying import REPLAY as SHARE_REPLAY
from ottla.coordinators.groups.state import GroupsState
from ottla.coordinators.groups.streams.group import StreamsGroup
from ottla.coordinators.groups.streams.metadata_changes import notice as notice_in_streams
from ottla.coordinators.groups.streams.replaying import REPLAY as STREAMS_REPLAY
from ottla.coordinators.groups.streams.timers import EXPIRED as STREAMS_EXPIRED
from ottla.coordinators.groups.streams.timers import expired as expired_in_streams
from ottla.coordinators.groups.streams.timers import take_over as take_over_streams
from ottla.coordinators.groups.timers import Due, TimerKey
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
"""Decides what is done when a time has come; it may have lost its reason since."""

REPLAY: Final[Mapping[type, Replay]] = {
    LegacyOffsetCommitKey: replay_offset,
    OffsetCommitKey: replay_offset,
    GroupMetadataKey: replay_group,
    **CONSUMER_REPLAY,
    **SHARE_REPLAY,
    **STREAMS_REPLAY,
}
"""By the class of a record's key."""


def _expire_session(state: GroupsState, key: TimerKey, context: Context) -> Decision[Any]:
    """A member was not heard of for too long: the group that it is in now decides."""
    group = state.groups.get(key.group)
    if isinstance(group, ConsumerGroup):
        return expired(state, key, context)
    if isinstance(group, ShareGroup):
        return share_timers.expired(group, key, context)
    if isinstance(group, StreamsGroup):
        return expired_in_streams(state, key, context)
    return CLASSIC_EXPIRED[Due.SESSION](state, key, context)


EXPIRED: Final[Mapping[str, Expire]] = {
    Due.OFFSET_EXPIRY: expire_offsets,
    **CLASSIC_EXPIRED,
    **CONSUMER_EXPIRED,
    **STREAMS_EXPIRED,
    Due.SESSION: _expire_session,
}
"""By what is due."""


class GroupsBehaviour:
    """The rules of the group coordinator. What surrounds a decision that no request asked for is asked of the node."""

    topic = "__consumer_offsets"
    kinds: Mapping[int, tuple[type, type]] = {
        **GROUP_RECORDS,
        **CONSUMER_GROUP_RECORDS,
        **SHARE_GROUP_RECORDS,
        **STREAMS_GROUP_RECORDS,
    }

    def __init__(self, context: Callable[[], Context]) -> None:
        self._context = context

    def empty(self) -> GroupsState:
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

    def loaded(self, state: GroupsState, now_ms: int) -> Decision[None]:
        context = self._context()
        decision = take_over(state, context)
        return Decision(
            decision.records,
            None,
            state=decision.state,
            timers=[
                *decision.timers,
                *take_over_consumers(state, context),
                *share_timers.take_over(state, context),
                *take_over_streams(state, context),
                next_expiry(context),
            ],
        )

    def expired(self, state: GroupsState, key: Hashable, now_ms: int) -> Decision[Any]:
        assert isinstance(key, TimerKey)
        return EXPIRED[key.due](state, key, self._context())

    def published(self, state: GroupsState, changes: Changes, now_ms: int) -> Decision[None] | None:
        changed = changes.topics_placed
        if not changed:
            return None
        noticed = notice_in_streams(notice(state, changes, changed), changed)
        noticed = share_published.notice(noticed, changed)
        records = [*forget_topics(noticed, changes.topics_deleted), *share_published.forget_topics(noticed, changes)]
        if not records and noticed is state:
            return None
        return Decision(records, None, state=noticed)

    def parked(self, state: GroupsState) -> Iterator[Ticket]:
        for group in state.groups.values():
            yield from group.parked()
