"""Random walks of a group whose members use either protocol: it is converted on the way, and converges."""

import random

import pytest

from ottla.coordinators.groups.classic.group import ClassicGroup
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.protocol.errors import GroupIdNotFound, InconsistentGroupProtocol, RebalanceInProgress
from tests.unit.coordinators.groups.consumer.classic_consumers import ClassicConsumer, Ticket
from tests.unit.coordinators.groups.consumer.consumers import SimulatedConsumer
from tests.unit.coordinators.groups.consumer.world import GROUP, World

SEEDS = 60
STEPS = 150
TOPICS = ["t0", "t1"]


class Walk:
    def __init__(self, seed: int) -> None:
        self.source = random.Random(seed)
        self.world = World(
            {"t0": 5, "t1": 3},
            group_initial_rebalance_delay_ms=self.source.choice([0, 1_000]),
            group_consumer_assignment_interval_ms=self.source.choice([0, 1_000]),
        )
        self.old: list[ClassicConsumer] = []
        self.new: list[SimulatedConsumer] = []
        self.number = 0
        self.kinds: set[type] = set()

    @property
    def everyone(self) -> list[ClassicConsumer | SimulatedConsumer]:
        return [*self.old, *self.new]

    def step(self) -> None:
        source, choice = self.source, self.source.random()
        everyone = self.everyone
        if choice < 0.65 and everyone:
            source.choice(everyone).beat()
        elif choice < 0.70 and len(self.old) < 3:
            self.add_old()
        elif choice < 0.76 and len(self.new) < 3:
            self.add_new()
        elif choice < 0.79 and self.old:
            gone = self.old.pop(source.randrange(len(self.old)))
            if source.random() < 0.7:
                gone.leave()
        elif choice < 0.84 and self.new:
            left = self.new.pop(source.randrange(len(self.new)))
            if source.random() < 0.7:
                left.leave()
        elif choice < 0.86:
            self.world.reload()
            for each in self.old:
                each.lose_coordinator()
        else:
            self.world.pass_time(source.choice([10, 1_000, 5_000]))
        self.kinds.add(type(self.world.state.groups.get(GROUP)))

    def add_old(self) -> None:
        topics = self.source.choice([TOPICS, TOPICS, ["t0"]])
        self.old.append(ClassicConsumer(self.world, topics, is_cooperative=self.source.random() < 0.5))

    def add_new(self) -> None:
        self.number += 1
        self.new.append(SimulatedConsumer(self.world, f"m{self.number}", TOPICS))

    def check(self) -> None:
        group = self.world.state.groups.get(GROUP)
        if not isinstance(group, ConsumerGroup):
            return
        owners: dict[tuple[bytes, int], str] = {}
        for member in group.members.values():
            for owned in (member.assigned, member.revoking):
                for topic_id, partitions in owned.items():
                    for partition in partitions:
                        assert owners.setdefault((topic_id, partition), member.id) == member.id
        assert dict(group.owners) == owners

    def settle(self) -> None:
        for _ in range(60):
            for each in self.everyone:
                each.beat()
                self.check()
            self.world.pass_time(2_000)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_group_of_both_protocols_converges(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()
        walk.check()
    if not walk.old and not walk.new:
        walk.add_new()
    walk.settle()
    world = walk.world
    group = world.state.groups[GROUP]
    assert isinstance(group, ConsumerGroup if walk.new else ClassicGroup)
    assert set(group.members) == {*(each.id for each in walk.old), *(each.name for each in walk.new)}
    everyone = walk.everyone
    held = [each for consumer in everyone for each in consumer.partitions()]
    names = {name for consumer in everyone for name in consumer.topics}
    wanted = sorted((world.id_of(name), number) for name in names for number in range({"t0": 5, "t1": 3}[name]))
    assert sorted(held) == wanted
    assert group.state_name == "Stable"


def test_the_walks_see_both_kinds() -> None:
    seen: set[type] = set()
    for seed in range(5):
        walk = Walk(seed)
        for _ in range(STEPS):
            walk.step()
        seen |= walk.kinds
    assert {ClassicGroup, ConsumerGroup} <= seen


def code_of(ticket: Ticket | None) -> int | None:
    """Return the response of a request; None if it still waits."""
    assert ticket is not None
    return None if ticket.answered is None else int(ticket.answered.error_code)


def test_members_waiting_for_a_generation_must_join_again() -> None:
    world = World({"t0": 5, "t1": 3}, group_initial_rebalance_delay_ms=1_000)
    waiting = ClassicConsumer(world, TOPICS, is_cooperative=False)
    waiting.beat()  # it is given an id
    waiting.beat()
    waiting.beat()  # it joins with it, and waits
    joining = waiting.joining
    assert code_of(joining) is None
    SimulatedConsumer(world, "m1", TOPICS).beat()
    assert code_of(joining) == RebalanceInProgress.code
    assert isinstance(world.state.groups[GROUP], ConsumerGroup)


def test_members_waiting_for_an_assignment_must_join_again() -> None:
    world = World({"t0": 5, "t1": 3}, group_initial_rebalance_delay_ms=0)
    first, second = (ClassicConsumer(world, TOPICS, is_cooperative=False) for _ in range(2))
    for each in (first, second, first, second, first, second):
        each.beat()
    world.pass_time(1)
    follower = next(each for each in (first, second) if _is_follower(each))
    follower.beat()
    syncing = follower.syncing
    assert code_of(syncing) is None
    SimulatedConsumer(world, "m1", TOPICS).beat()
    assert code_of(syncing) == RebalanceInProgress.code


def _is_follower(consumer: ClassicConsumer) -> bool:
    joining = consumer.joining
    return joining is not None and joining.answered is not None and joining.answered.leader != consumer.id


def test_the_migration_policy_prevents_conversions() -> None:
    world = World({"t0": 1}, group_initial_rebalance_delay_ms=0, group_consumer_migration_policy="disabled")
    old = ClassicConsumer(world, ["t0"], is_cooperative=False)
    for _ in range(6):
        old.beat()
        world.pass_time(1)
    assert len(old.partitions()) == 1
    with pytest.raises(GroupIdNotFound, match="online upgrade is disabled"):
        world.join("m1", ["t0"])
    old.leave()
    world.join("m1", ["t0"])
    refused = ClassicConsumer(world, ["t0"], is_cooperative=False)
    refused.beat()
    assert refused.joining is not None
    assert isinstance(refused.joining.answered, InconsistentGroupProtocol)
