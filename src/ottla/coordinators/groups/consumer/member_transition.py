"""The effects of one member's request on its group: subscription, group epoch, target and the member's assignment.

Used for members of both protocols. A `MemberTransition` collects the records, timers and unrecorded changes of one
decision.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import TypeVar

from ottla.coordinators.groups.consumer import regexes
from ottla.coordinators.groups.consumer.group import RegexResolution
from ottla.coordinators.groups.consumer.group_lookup import GroupLookup
from ottla.coordinators.groups.consumer.joining import RequestingMember, replacement_records, with_requester
from ottla.coordinators.groups.consumer.member import ConsumerGroupMember, MemberState, Target
from ottla.coordinators.groups.consumer.reconciling import Reported, reconcile
from ottla.coordinators.groups.consumer.records import (
    current_assignment_record,
    epoch_record,
    member_record,
    partition_metadata_tombstone,
    regex_tombstone,
    target_assignment_epoch_record,
    target_assignment_record,
)
from ottla.coordinators.groups.consumer.settings import assignment_interval_ms, available_assignors, choose_assignor
from ottla.coordinators.groups.consumer.targets import compute_targets
from ottla.coordinators.groups.consumer.timer_keys import Timers, rebalance_timer
from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.epoch_group import RefreshDeadline
from ottla.coordinators.groups.metadata_hash import topics_hash
from ottla.coordinators.groups.state import GroupsState
from ottla.storage.state_machine.decision import Decision
from ottla.storage.state_machine.entries import Stored

R = TypeVar("R")


class _RegexChange(Enum):
    """The change of a member's regular expression."""

    SAME = 0
    CHANGED = 1
    CHANGED_AND_RESOLVED = 2
    """The matches of the new expression are known already."""


class MemberTransition:
    """The changes that one request of a member causes."""

    def __init__(
        self,
        state: GroupsState,
        lookup: GroupLookup,
        requester: RequestingMember,
        updated: ConsumerGroupMember,
        context: Context,
    ) -> None:
        self.state = state
        self.lookup = lookup
        self.group = lookup.group
        """The group before the request."""
        self.requester = requester
        self.member = updated
        self.context = context
        self.records: list[Stored] = list(lookup.records)
        self.timers: Timers = list(lookup.timers)
        self.epoch = self.group.epoch
        self.after = self.group
        """The group with the updated member, without expressions that no member uses."""
        self.is_subscription_changed = False
        """Whether the member's subscription changed."""
        self._refresh_deadline: RefreshDeadline | None = None
        self._regex_resolution: RegexResolution | None = None
        self._rejoined_id = ""
        if requester.replaced is not None:
            self.records += replacement_records(self.group, requester.replaced, requester.member)

    def update_subscription(self, *, is_classic: bool = False) -> None:
        """Write the member's subscription; bump the group epoch if it or the topics changed."""
        group, old, new = self.group, self.requester.member, self.member
        if new != old:
            self.records.append(member_record(group.id, new))
        if new != old or self.requester.replaced is not None:
            self.after = with_requester(group, self.requester.replaced, new)
        names_changed = new.topics != old.topics
        regex = self._regex_change()
        self.is_subscription_changed = names_changed or regex is not _RegexChange.SAME
        # An unresolved expression bumps the epoch once it is resolved.
        bumps = (
            names_changed or regex is _RegexChange.CHANGED_AND_RESOLVED or (is_classic and self.is_subscription_changed)
        )
        if bumps or group.must_refresh(self.context.now_ms):
            self._update_epoch(bumps)

    def update_target(self) -> tuple[int, Target]:
        """Return the target's epoch and the member's part of it; compute a new target if it is outdated.

        A new group epoch does not mean a new target: there is at most one in `consumer.assignment.interval.ms`, and
        members that join before it is due move towards the old one.
        """
        group, context = self.group, self.context
        is_due = group.may_replace_target(assignment_interval_ms(group.id, context), context.now_ms)
        if group.target_epoch >= self.epoch or not is_due:
            return group.target_epoch, group.target_of(self.member)
        after = replace(self.after, epoch=self.epoch)
        is_new = self.member.id not in group.members
        targets = compute_targets(
            after,
            context.image,
            available_assignors(context)[choose_assignor(after.preferred_assignor(), context)],
            new_member=self.member if is_new else None,
        )
        self.records += [
            target_assignment_record(group.id, member_id, target)
            for member_id, target in targets.items()
            if group.targets.get(member_id) != target
        ]
        self.records.append(target_assignment_epoch_record(group.id, self.epoch, context.now_ms))
        return self.epoch, targets[self.member.id]

    def reconcile(self, reported: Reported) -> None:
        """Take the member one step towards the group's target."""
        epoch, target = self.update_target()
        self.reconcile_to(epoch, target, reported, subscription_changed=self.is_subscription_changed)

    def reconcile_to(self, epoch: int, target: Target, reported: Reported, *, subscription_changed: bool) -> None:
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
        self.records.append(current_assignment_record(self.group.id, new))
        if not new.is_classic:
            must_revoke = new.state is MemberState.UNREVOKED_PARTITIONS
            until = self.context.now_ms + new.rebalance_timeout_ms if must_revoke else None
            self.timers.append((rebalance_timer(self.group.id, new.id), until))

    def to_decision(self, reply: R) -> Decision[R]:
        """Return the collected changes with the reply."""
        return Decision(
            self.records, reply, state=self._unrecorded_changes(), answers=self.lookup.answers, timers=self.timers
        )

    def clear_rejoin(self, member_id: str) -> None:
        """Note that a classic member has joined again as requested."""
        self._rejoined_id = member_id

    def _unrecorded_changes(self) -> GroupsState | None:
        """Return the state with the changes that have no record, or None if there are none."""
        group = self.group
        if self._refresh_deadline is not None:
            group = replace(group, refresh_deadline=self._refresh_deadline)
        if self._regex_resolution is not None:
            group = replace(group, regex_resolution=self._regex_resolution)
        if self._rejoined_id in group.rejoin_deadlines:
            group = replace(group, rejoin_deadlines=group.rejoin_deadlines.delete(self._rejoined_id))
        if group is self.group or not self.lookup.is_existing:
            return None
        return self.state.with_group(group)

    def _regex_change(self) -> _RegexChange:
        group, old, new = self.group, self.requester.member.regex, self.member.regex
        change = _RegexChange.SAME
        is_new = False
        if old != new:
            change = _RegexChange.CHANGED
            if old and group.regex_counts.get(old) == 1:
                self.records.append(regex_tombstone(group.id, old))
                if old in self.after.resolved_regexes:
                    self.after = replace(self.after, resolved_regexes=self.after.resolved_regexes.delete(old))
            if new:
                if new not in group.regex_counts:
                    regexes.compile_regex(new)
                    is_new = True
                elif new in group.resolved_regexes:
                    change = _RegexChange.CHANGED_AND_RESOLVED
            elif old:
                change = _RegexChange.CHANGED_AND_RESOLVED
        used = self.after.regex_counts
        if regexes.needs_resolution(group, used, self.context, is_new=is_new):
            self._regex_resolution = regexes.begin_resolution(used, self.context)
            self.timers.append((regexes.resolution_timer(group.id), self.context.now_ms))
        return change

    def _update_epoch(self, bumps: bool) -> None:
        group = self.group
        metadata_hash = topics_hash(self.after.subscribed_topics(), self.context.image)
        if bumps or metadata_hash != group.metadata_hash:
            self.epoch += 1
            self.records.append(epoch_record(group.id, self.epoch, metadata_hash))
        self._refresh_deadline = RefreshDeadline.after(self.context.now_ms, self.epoch)
        if group.has_partition_metadata:
            self.records.append(partition_metadata_tombstone(group.id))
