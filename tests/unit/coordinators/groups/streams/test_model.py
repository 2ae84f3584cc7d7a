"""Random walks of a streams group on virtual time: an active task has one owner, and the group converges."""

import random
from dataclasses import fields, replace

import pytest

from ottla.coordinators.groups.epoch_group import REFRESH_DUE
from ottla.coordinators.groups.streams.group import StreamsGroup
from tests.unit.coordinators.groups.consumer.world import GROUP, World
from tests.unit.coordinators.groups.streams.threads import SimulatedThread, word_count

SEEDS = 60
STEPS = 120
HEARTBEAT_MS = 5_000


class Walk:
    def __init__(self, seed: int) -> None:
        self.source = random.Random(seed)
        self.world = World(
            {"lines": self.source.randint(1, 6)},
            group_streams_assignment_interval_ms=self.source.choice([0, 1_000]),
            group_streams_initial_rebalance_delay_ms=self.source.choice([0, 3_000]),
            group_streams_num_standby_replicas=self.source.choice([0, 1, 2]),
        )
        self.threads: list[SimulatedThread] = []
        self.silent: list[SimulatedThread] = []
        self.number = 0

    def add(self) -> None:
        self.number += 1
        process = f"p{self.source.randrange(4)}"
        self.threads.append(SimulatedThread(self.world, f"m{self.number}", process, word_count()))

    def step(self) -> None:
        source, choice = self.source, self.source.random()
        if choice < 0.55 and self.threads:
            source.choice(self.threads).beat(answer_is_lost=source.random() < 0.1)
        elif choice < 0.68 and len(self.threads) < 8:
            self.add()
        elif choice < 0.74 and self.threads:
            self.threads.pop(source.randrange(len(self.threads))).leave()
        elif choice < 0.78 and self.threads:
            self.silent.append(self.threads.pop(source.randrange(len(self.threads))))
        elif choice < 0.81:
            self.world.configure(GROUP, streams_num_standby_replicas=str(source.choice([0, 1, 2])))
        elif choice < 0.85:
            self.world.reload()
        elif choice < 0.87 and self.world.image.topic("counts-changelog") is not None:
            self.world.set_topic("counts-changelog", 0)
        else:
            self.world.pass_time(source.choice([10, 500, 1_500, HEARTBEAT_MS]))

    def check(self) -> None:
        group = self.world.state.groups.get(GROUP)
        if group is None:
            return
        assert isinstance(group, StreamsGroup)
        owners: dict[tuple[str, int], str] = {}
        of_process: dict[tuple[str, str, int], tuple[str, str]] = {}
        for member in group.members.values():
            assert member.epoch <= group.target_epoch <= group.epoch
            for owned in (member.assigned, member.revoking):
                for role, tasks in (("active", owned.active), ("standby", owned.standby)):
                    for name, numbers in tasks.items():
                        for number in numbers:
                            if role == "active":
                                assert owners.setdefault((name, number), member.id) == member.id
                            # No process has a task twice, even in two roles.
                            mine = (member.id, role)
                            assert of_process.setdefault((member.process_id, name, number), mine) == mine
        assert {task: group.members[owner].process_id for task, owner in owners.items()} == dict(group.active)
        held: dict[tuple[str, int], str] = {}
        for thread in self.threads:
            if thread.name in group.members:
                for task in thread.owned["active"]:
                    assert held.setdefault(task, thread.name) == thread.name

    def settle(self) -> None:
        for _ in range(40):
            for thread in self.threads:
                thread.beat()
                self.check()
            self.world.pass_time(HEARTBEAT_MS)

    def check_rest(self) -> None:
        world = self.world
        group = world.state.groups[GROUP]
        assert isinstance(group, StreamsGroup)
        assert set(group.members) == {thread.name for thread in self.threads}
        lines = world.image.topic("lines")
        assert lines is not None
        count = len(lines.partitions)
        wanted = {(name, number) for name in ("0", "1") for number in range(count)}
        assert group.state_name == "Stable"
        assert sorted(task for thread in self.threads for task in thread.owned["active"]) == sorted(wanted)
        standbys = min(int(group.settings["num.standby.replicas"]), len({each.process for each in self.threads}) - 1)
        kept = sorted(task for thread in self.threads for task in thread.owned["standby"])
        assert kept == sorted(("1", number) for number in range(count) for _ in range(standbys))
        loads = [len(thread.owned["active"]) for thread in self.threads]
        assert max(loads) <= 2 * count


@pytest.mark.parametrize("seed", range(SEEDS))
def test_an_active_task_has_one_owner_and_the_group_converges(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()
        walk.check()
    if not walk.threads:
        walk.add()
    walk.world.pass_time(100_000)  # who fell silent is fenced
    walk.settle()
    walk.check_rest()


def test_the_loaded_state_equals_the_original() -> None:
    walk = Walk(3)
    for _ in range(STEPS):
        walk.step()
    before = walk.world.state.groups[GROUP]
    walk.world.reload()
    after = walk.world.state.groups[GROUP]
    assert isinstance(before, StreamsGroup)
    assert isinstance(after, StreamsGroup)
    before = replace(
        before, configured=None, refresh_deadline=REFRESH_DUE, is_delayed=False, shutdown_by=None, endpoint_epoch=0
    )
    for field in fields(StreamsGroup):
        assert getattr(before, field.name) == getattr(after, field.name), field.name
