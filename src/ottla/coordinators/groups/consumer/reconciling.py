"""Reconciliation of a member's assignment with its target: revoke first, then take what is free, then wait.

A partition belongs to its owner until the owner reports that it has revoked it. A member that must revoke partitions
keeps its epoch until it has. Then it moves to the target's epoch with all free partitions, and gets the others later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.consumer.member import NOTHING_OWNED, ConsumerGroupMember, MemberState, Owned, Target
from ottla.metadata.image.image import Image
from ottla.protocol.errors import FencedMemberEpoch

Reported = Sequence[tuple[bytes, Sequence[int]]] | None
"""The partitions that a member reports to own, by topic id; None if it reports none."""
_NONE: dict[int, int] = {}


def reconcile(
    group: ConsumerGroup,
    member: ConsumerGroupMember,
    image: Image,
    *,
    target_epoch: int,
    target: Target,
    reported: Reported,
    subscription_changed: bool,
) -> ConsumerGroupMember:
    """Return the member after the next step; the same object if it cannot move."""
    reconciliation = _Reconciliation(group, member, image, target_epoch, target, reported)
    match member.state:
        case MemberState.STABLE:
            if member.epoch != target_epoch:
                return reconciliation.advance(member.epoch)
            return reconciliation.revoke_unsubscribed() if subscription_changed else member
        case MemberState.UNREVOKED_PARTITIONS:
            if reconciliation.still_owns(member.revoking):
                return reconciliation.revoke_unsubscribed() if subscription_changed else member
            return reconciliation.advance(member.epoch)
        case MemberState.UNRELEASED_PARTITIONS:
            return reconciliation.advance(member.epoch)
        case _:
            # A later version wrote the state: the member must start over.
            if reported is None or reported:
                raise FencedMemberEpoch(
                    "The consumer group member is in a unknown state. The member must abandon all its partitions "
                    "and rejoin."
                )
            return reconciliation.advance(target_epoch)


class _Reconciliation:
    """The next step of one member."""

    def __init__(
        self,
        group: ConsumerGroup,
        member: ConsumerGroupMember,
        image: Image,
        target_epoch: int,
        target: Target,
        reported: Reported,
    ) -> None:
        self.group = group
        self.member = member
        self.image = image
        self.target_epoch = target_epoch
        self.target = target
        self.reported = reported
        self.topics = group.topics_of(member)

    def still_owns(self, revoking: Owned) -> bool:
        """Whether the member may still own one of the partitions; a member that reports nothing may."""
        if self.reported is None:
            return True
        return any(
            partition in revoking[topic_id]
            for topic_id, partitions in self.reported
            if topic_id in revoking
            for partition in partitions
        )

    def revoke_unsubscribed(self) -> ConsumerGroupMember:
        """Revoke the topics that the member is no longer subscribed to, without a change of epoch."""
        member, assigned = self.member, self.member.assigned
        if not self.topics and not member.revoking:
            kept: Owned = NOTHING_OWNED
            revoking: Owned = assigned
        else:
            dropped = [topic_id for topic_id in assigned if not self._is_subscribed(topic_id)]
            if not dropped:
                return member
            kept = {topic_id: owned for topic_id, owned in assigned.items() if topic_id not in dropped}
            revoking = dict(member.revoking)
            for topic_id in dropped:
                revoking[topic_id] = {**revoking.get(topic_id, _NONE), **assigned[topic_id]}
        if revoking and self.still_owns(revoking):
            return replace(
                member,
                state=MemberState.UNREVOKED_PARTITIONS,
                previous_epoch=member.epoch,
                assigned=kept,
                revoking=revoking,
            )
        return replace(member, previous_epoch=member.epoch, assigned=kept)

    def advance(self, epoch: int) -> ConsumerGroupMember:
        """Move towards the target as far as possible; stay at `epoch` if partitions must be revoked first."""
        kept: dict[bytes, dict[int, int]] = {}
        revoking: dict[bytes, dict[int, int]] = {}
        taken: dict[bytes, list[int]] = {}
        must_wait = False
        is_owned_by_other: Callable[[ConsumerGroupMember, bytes, int], bool] = self.group.is_owned_by_other
        for topic_id in {**self.target, **self.member.assigned}:
            owned = self.member.assigned.get(topic_id, _NONE)
            target_partitions = self.target.get(topic_id, ()) if self._is_subscribed(topic_id) else ()
            stays = {partition: owned[partition] for partition in target_partitions if partition in owned}
            free = []
            for partition in target_partitions:
                if partition in stays:
                    continue
                if is_owned_by_other(self.member, topic_id, partition):
                    must_wait = True
                else:
                    free.append(partition)
            if stays:
                kept[topic_id] = stays
            if len(stays) < len(owned):
                revoking[topic_id] = {partition: since for partition, since in owned.items() if partition not in stays}
            if free:
                taken[topic_id] = free
        if revoking and self.still_owns(revoking):
            return replace(
                self.member,
                state=MemberState.UNREVOKED_PARTITIONS,
                epoch=epoch,
                previous_epoch=self.member.epoch,
                assigned=kept,
                revoking=revoking,
            )
        for topic_id, partitions in taken.items():
            owned_now = {**kept.get(topic_id, _NONE), **dict.fromkeys(partitions, self.target_epoch)}
            kept[topic_id] = dict(sorted(owned_now.items()))
        return replace(
            self.member,
            state=MemberState.UNRELEASED_PARTITIONS if must_wait else MemberState.STABLE,
            epoch=self.target_epoch,
            previous_epoch=self.member.epoch,
            assigned=kept,
            revoking=NOTHING_OWNED,
        )

    def _is_subscribed(self, topic_id: bytes) -> bool:
        topic = self.image.topic_by_id(topic_id)
        return topic is not None and topic.name in self.topics
