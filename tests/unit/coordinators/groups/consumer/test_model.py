"""Random walks of a group on virtual time: no partition has two owners, and finally all are assigned."""

import random
import re
from dataclasses import fields, replace

import pytest

from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.epoch_group import REFRESH_DUE
from tests.unit.coordinators.groups.consumer.consumers import SimulatedConsumer
from tests.unit.coordinators.groups.consumer.world import GROUP, World

SEEDS = 60
STEPS = 120
HEARTBEAT_MS = 5_000


class Walk:
    def __init__(self, seed: int) -> None:
        self.source = random.Random(seed)
        topics = {f"t{number}": self.source.randint(1, 9) for number in range(self.source.randint(1, 4))}
        interval_ms = self.source.choice([0, 1_000, 3_000])
        self.world = World(topics, group_consumer_assignment_interval_ms=interval_ms)
        self.consumers: list[SimulatedConsumer] = []
        self.silent: list[SimulatedConsumer] = []
        self.resting: list[str] = []
        self.number = 0

    def add(self) -> None:
        source = self.source
        self.number += 1
        topics = [f"t{number}" for number in range(4) if source.random() < 0.7]
        regex = source.choice([None, None, None, "t.*", "t[01]"])
        instance_id = self.resting.pop() if self.resting else f"i{self.number}" if source.random() < 0.3 else None
        self.consumers.append(
            SimulatedConsumer(self.world, f"m{self.number}", topics, regex=regex, instance_id=instance_id)
        )

    def step(self) -> None:
        source, choice = self.source, self.source.random()
        if choice < 0.5 and self.consumers:
            source.choice(self.consumers).beat(answer_is_lost=source.random() < 0.1)
        elif choice < 0.62 and len(self.consumers) < 8:
            self.add()
        elif choice < 0.68 and self.consumers:
            gone = self.consumers.pop(source.randrange(len(self.consumers)))
            for_good = source.random() < 0.5
            gone.leave(for_good=for_good)
            if gone.instance_id is not None and not for_good:
                self.resting.append(gone.instance_id)
        elif choice < 0.72 and self.consumers:
            self.silent.append(self.consumers.pop(source.randrange(len(self.consumers))))
        elif choice < 0.78 and self.consumers:
            source.choice(self.consumers).subscribe([f"t{number}" for number in range(4) if source.random() < 0.5])
        elif choice < 0.84:
            self.change_topics()
        elif choice < 0.88:
            self.world.reload()
        else:
            self.world.pass_time(source.choice([10, 500, 1_500, HEARTBEAT_MS]))

    def change_topics(self) -> None:
        name = f"t{self.source.randrange(4)}"
        known = self.world.image.topic(name)
        if known is None:
            self.world.set_topic(name, self.source.randint(1, 9))
        elif self.source.random() < 0.3:
            self.world.set_topic(name, 0)
        elif len(known.partitions) < 12:
            self.world.set_topic(name, len(known.partitions) + 1)

    def check(self) -> None:
        group = self.world.state.groups.get(GROUP)
        if group is None:
            return
        assert isinstance(group, ConsumerGroup)
        owners: dict[tuple[bytes, int], str] = {}
        for member in group.members.values():
            assert member.epoch <= group.target_epoch <= group.epoch
            for owned in (member.assigned, member.revoking):
                for topic_id, partitions in owned.items():
                    for partition in partitions:
                        assert owners.setdefault((topic_id, partition), member.id) == member.id
        assert dict(group.owners) == owners
        held: dict[tuple[bytes, int], str] = {}
        for consumer in self.consumers:
            # A fenced member learns of it with its next heartbeat; until then its epoch prevents commits.
            known = group.members.get(consumer.name)
            if known is None or known.epoch == -2:
                continue
            for each in consumer.partitions():
                assert held.setdefault(each, consumer.name) == consumer.name
                assert owners.get(each, consumer.name) == consumer.name

    def settle(self) -> None:
        for _ in range(40):
            for consumer in self.consumers:
                consumer.beat()
                self.check()
            self.world.pass_time(HEARTBEAT_MS)

    def check_rest(self) -> None:
        world, group = self.world, self.world.group()
        resting = {member.id for member in group.members.values() if member.epoch == -2}
        assert set(group.members) - resting == {consumer.name for consumer in self.consumers}
        wanted = {
            (topic.id, number)
            for name, topic in world.image.topics.items()
            if any(is_reader(consumer, name) for consumer in self.consumers)
            for number in range(len(topic.partitions))
        }
        kept = {each for each, owner in group.owners.items() if owner in resting}
        for consumer in self.consumers:
            assert consumer.epoch == group.epoch == group.target_epoch
        assert group.state_name == ("Reconciling" if resting else "Stable")
        assert {each for consumer in self.consumers for each in consumer.partitions()} == wanted - kept


def is_reader(consumer: SimulatedConsumer, topic: str) -> bool:
    matches = consumer.regex is not None and re.fullmatch(consumer.regex, topic) is not None
    return matches or topic in consumer.topics


def recorded(group: ConsumerGroup) -> dict[str, object]:
    """Return the recorded and derived fields of a group."""
    plain = replace(group, refresh_deadline=REFRESH_DUE, regex_resolution=None, new_topics_version=-1)
    return {field.name: getattr(plain, field.name) for field in fields(plain)}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_group_converges(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()
        walk.check()
    if not walk.consumers:
        walk.add()
    walk.settle()
    walk.check_rest()
    # From here on only topics change.
    walk.change_topics()
    walk.settle()
    walk.check_rest()
    before = recorded(walk.world.group())
    walk.world.reload()
    assert recorded(walk.world.group()) == before
