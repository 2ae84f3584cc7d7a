"""What a member's word does to its group: subscription, epoch, target, and the member's own step.

Used for members of both protocols. Nothing changes here: records, timers and unrecorded changes are collected into one
decision.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import TypeVar

from ottla.coordinators.groups.consumer import regexes
from ottla.coordinators.groups.consumer.group import Matching
from ottla.coordinators.groups.consumer.group_lookup import Found
from ottla.coordinators.groups.consumer.joining import Speaker, replacement, with_speaker
from ottla.coordinators.groups.consumer.member import Member, MemberState, Target
from ottla.coordinators.groups.consumer.reconciling import Reported, reconcile
from ottla.coordinators.groups.consumer.records import (
    current_record,
    epoch_record,
    member_record,
    partition_metadata_tombstone,
    regex_tombstone,
    target_epoch_record,
    target_record,
)
from ottla.coordinators.groups.consumer.settings import assignment_interval_ms, assignor_of, assignors
from ottla.coordinators.groups.consumer.targets import new_targets
from ottla.coordinators.groups.consumer.timer_keys import Timers, rebalance_timer
from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.epoch_group import RefreshDeadline
from ottla.coordinators.groups.metadata_hash import topics_hash
from ottla.coordinators.groups.state import GroupsState
from ottla.storage.state_machine.decision import Decision
from ottla.storage.state_machine.entries import Stored

R = TypeVar("R")


class _Regex(Enum):
    """What became of a member's expression."""

    SAME = 0
    CHANGED = 1
    CHANGED_AND_RESOLVED = 2
    """It is known already what the new one matches."""


class Advance:
    """One member's word, and all that follows from it."""

    def __init__(self, state: GroupsState, found: Found, speaker: Speaker, updated: Member, context: Context) -> None:
        self.state = state
        self.found = found
        self.group = found.group
        """As it was before."""
        self.speaker = speaker
        self.member = updated
        self.context = context
        self.records: list[Stored] = list(found.records)
        self.timers: Timers = list(found.timers)
        self.epoch = self.group.epoch
        self.after = self.group
        """The group with the member as it is now, and with no expression that nobody uses."""
        self.is_changed = False
        """Whether what the member reads is other than before."""
        self.is_bumped = False
        self._refresh: RefreshDeadline | None = None
        self._matching: Matching | None = None
        self._rejoined = ""
        if speaker.replaced is not None:
            self.records += replacement(self.group, speaker.replaced, speaker.member)

    def subscribe(self, *, is_classic: bool = False) -> None:
        """Write down what the member wants; raise the group's epoch if it or the topics changed."""
        group, old, new = self.group, self.speaker.member, self.member
        if new != old:
            self.records.append(member_record(group.id, new))
        if new != old or self.speaker.replaced is not None:
            self.after = with_speaker(group, self.speaker.replaced, new)
        names_changed = new.topics != old.topics
        regex = self._regex_change()
        self.is_changed = names_changed or regex is not _Regex.SAME
        # An expression that is not resolved yet raises the epoch when it is.
        bumps = names_changed or regex is _Regex.CHANGED_AND_RESOLVED or (is_classic and self.is_changed)
        if bumps or group.must_refresh(self.context.now_ms):
            self._update_epoch(bumps)

    def targeted(self) -> tuple[int, Target]:
        """The target's epoch and what it gives the member; made anew if the group's epoch is higher, and it is time."""
        group, context = self.group, self.context
        is_due = group.may_replace_target(assignment_interval_ms(group.id, context), context.now_ms)
        if group.target_epoch >= self.epoch or not is_due:
            return group.target_epoch, group.target_of(self.member)
        after = replace(self.after, epoch=self.epoch)
        is_new = self.member.id not in group.members
        targets = new_targets(
            after,
            context.image,
            assignors(context)[assignor_of(after.preferred_assignor(), context)],
            newcomer=self.member if is_new else None,
        )
        self.records += [
            target_record(group.id, member_id, target)
            for member_id, target in targets.items()
            if group.targets.get(member_id) != target
        ]
        self.records.append(target_epoch_record(group.id, self.epoch, context.now_ms))
        return self.epoch, targets[self.member.id]

    def reconcile(self, reported: Reported) -> None:
        """Take the member one step towards the target."""
        epoch, target = self.targeted()
        self.step(epoch, target, reported, subscription_changed=self.is_changed)

    def step(self, epoch: int, target: Target, reported: Reported, *, subscription_changed: bool) -> None:
        """Take the member one step towards a given target."""
        old = self.member
        if not subscription_changed and old.is_reconciled_to(epoch):
            return
        new = reconcile(
            self.group,
            old,
            self.context.image,
            target_epoch=epoch,
            target=target,
            reported=reported,
            subscription_changed=subscription_changed,
        )
        if new == old:
            return
        self.member = new
        self.records.append(current_record(self.group.id, new))
        if not new.is_classic:
            must_revoke = new.state is MemberState.UNREVOKED_PARTITIONS
            until = self.context.now_ms + new.rebalance_timeout_ms if must_revoke else None
            self.timers.append((rebalance_timer(self.group.id, new.id), until))

    def decision(self, reply: R) -> Decision[R]:
        """All of it."""
        return Decision(self.records, reply, state=self._changed(), answers=self.found.answers, timers=self.timers)

    def forget_rejoining(self, member_id: str) -> None:
        """A classic member that was told to join again has."""
        self._rejoined = member_id

    def _changed(self) -> GroupsState | None:
        """The state with what is not recorded of the group, if that changed."""
        group = self.group
        if self._refresh is not None:
            group = replace(group, refresh_deadline=self._refresh)
        if self._matching is not None:
            group = replace(group, matching=self._matching)
        if self._rejoined in group.rejoining:
            group = replace(group, rejoining=group.rejoining.delete(self._rejoined))
        if group is self.group or not self.found.is_known:
            return None
        return self.state.with_group(group)

    def _regex_change(self) -> _Regex:
        group, old, new = self.group, self.speaker.member.regex, self.member.regex
        change = _Regex.SAME
        is_new = False
        if old != new:
            change = _Regex.CHANGED
            if old and group.regexes.get(old) == 1:
                self.records.append(regex_tombstone(group.id, old))
                if old in self.after.resolved:
                    self.after = replace(self.after, resolved=self.after.resolved.delete(old))
            if new:
                if new not in group.regexes:
                    regexes.compiled(new)
                    is_new = True
                elif new in group.resolved:
                    change = _Regex.CHANGED_AND_RESOLVED
            elif old:
                change = _Regex.CHANGED_AND_RESOLVED
        used = self.after.regexes
        if regexes.needs_look(group, used, self.context, is_new=is_new):
            self._matching = regexes.begin(used, self.context)
            self.timers.append((regexes.resolution_timer(group.id), self.context.now_ms))
        return change

    def _update_epoch(self, bumps: bool) -> None:
        group = self.group
        metadata_hash = topics_hash(self.after.subscribed_topics(), self.context.image)
        self.is_bumped = bumps or metadata_hash != group.metadata_hash
        if self.is_bumped:
            self.epoch += 1
            self.records.append(epoch_record(group.id, self.epoch, metadata_hash))
        self._refresh = RefreshDeadline.after(self.context.now_ms, self.epoch)
        if group.has_partition_metadata:
            self.records.append(partition_metadata_tombstone(group.id))
