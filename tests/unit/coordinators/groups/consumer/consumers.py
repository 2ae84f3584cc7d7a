"""Simulated consumers that follow the protocol: they revoke before they take, and join again when fenced."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ottla.protocol.errors import ApiError, FencedInstanceId, FencedMemberEpoch, UnknownMemberId, UnreleasedInstanceId
from tests.unit.coordinators.groups.consumer.world import GROUP, World


class SimulatedConsumer:
    """One consumer. Its first heartbeat has all fields; later ones have its partitions when they changed."""

    def __init__(
        self,
        world: World,
        name: str,
        topics: Sequence[str] = ("t",),
        *,
        regex: str | None = None,
        instance_id: str | None = None,
        group_id: str = GROUP,
    ) -> None:
        self.world = world
        self.name = name
        self.topics = list(topics)
        self.regex = regex
        self.instance_id = instance_id
        self.group_id = group_id
        self.epoch = 0
        self.owned: dict[bytes, set[int]] = {}
        self.wanted: dict[bytes, set[int]] | None = None
        self._told: dict[bytes, set[int]] = {}
        self._says_all = True

    def partitions(self) -> set[tuple[bytes, int]]:
        return {(topic_id, number) for topic_id, numbers in self.owned.items() for number in numbers}

    def subscribe(self, topics: Sequence[str]) -> None:
        self.topics = list(topics)
        self._says_all = True

    def beat(self, *, answer_is_lost: bool = False) -> None:
        """Send a heartbeat, and apply the response."""
        self._reconcile()
        fields: dict[str, Any] = {"group_id": self.group_id, "instance_id": self.instance_id}
        owned = None
        if self.epoch == 0 or self._says_all:
            fields["rebalance_timeout_ms"] = 60_000
            fields["subscribed_topic_names"] = self.topics
            fields["subscribed_topic_regex"] = self.regex
        if self.epoch == 0:
            owned = {}
        elif self._says_all or self.owned != self._told:
            owned = {self.world.name_of(topic): sorted(numbers) for topic, numbers in self._known().items()}
        try:
            reply = self.world.beat(self.name, self.epoch, owned, **fields)
        except (FencedMemberEpoch, UnknownMemberId, FencedInstanceId):
            self.lose_all()
            return
        except UnreleasedInstanceId:
            return
        if answer_is_lost:
            self._says_all = True
            return
        self._says_all = False
        self._told = {topic: set(numbers) for topic, numbers in self.owned.items()}
        self.epoch = reply.member_epoch
        if reply.assignment is not None:
            self.wanted = {each.topic_id: set(each.partitions) for each in reply.assignment.topic_partitions}
            # Revoking may take a while: it happens before the next heartbeat.

    def _known(self) -> dict[bytes, set[int]]:
        return {topic: numbers for topic, numbers in self.owned.items() if self.world.image.topic_by_id(topic)}

    def _reconcile(self) -> None:
        """Revoke old partitions and take new ones."""
        if self.wanted is not None:
            self.owned = {topic: set(numbers) for topic, numbers in self.wanted.items()}
            self.wanted = None

    def lose_all(self) -> None:
        self.epoch = 0
        self.owned, self._told, self.wanted = {}, {}, None
        self._says_all = True

    def leave(self, *, for_good: bool = True) -> None:
        """Leave the group."""
        epoch = -2 if self.instance_id is not None and not for_good else -1
        with suppress(ApiError):  # it may have been fenced without knowing
            self.world.beat(self.name, epoch, group_id=self.group_id, instance_id=self.instance_id)
        self.lose_all()
