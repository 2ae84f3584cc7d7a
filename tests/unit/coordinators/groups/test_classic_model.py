"""Invariants of classic groups under random joins, crashes, coordinator failovers and failing appends.

- In a generation, a partition has at most one owner.
- Only members in the current generation commit, and the last commit is the one fetched.
- Every waiting request is answered exactly once.
"""

from random import Random

import pytest

from ottla.coordinators.groups.classic.group import ClassicGroup
from ottla.protocol.errors import NONE, MemberIdRequired
from tests.unit.coordinators.groups.classic_world import GROUP, ClassicWorld, Waiting

PARTITIONS = 4
STEPS = 400


class Consumer:
    """A simulated client that may be slow, return under the same instance id, or die."""

    def __init__(self, number: int, instance: str | None) -> None:
        self.number = number
        self.instance = instance
        self.id = ""
        self.generation = -1
        self.members: list[str] | None = None
        self.joining: Waiting | None = None
        self.syncing: Waiting | None = None
        self.owned: set[int] = set()

    @property
    def waits(self) -> bool:
        return any(each is not None and not each.is_done for each in (self.joining, self.syncing))


class Walk:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = ClassicWorld(group_initial_rebalance_delay_ms=self.random.choice([0, 3000]), group_max_size=6)
        self.consumers: list[Consumer] = []
        self.owners: dict[tuple[int, int], str] = {}
        self.committed: dict[int, int] = {}
        self._number = 0
        self._offset = 0

    def run(self) -> None:
        actions = (
            *((self.begin, 6), (self.go_on, 90), (self.commit, 20), (self.leave, 3), (self.die, 3)),
            *((self.pass_time, 12), (self.lose, 2), (self.fail_for_a_while, 2), (self.speak_from_the_grave, 3)),
        )
        for _ in range(STEPS):
            (action,) = self.random.choices([each for each, _ in actions], [weight for _, weight in actions])
            action()
            self.check()
        self.world.fails = False
        self.world.lose()
        assert all(each.is_done for each in self.world.waiting)
        self.check()

    def check(self) -> None:
        assert self.world.fetch() == self.committed
        group = self.world.state.groups.get(GROUP)
        assert group is None or isinstance(group, ClassicGroup)
        if group is not None:
            parked = {id(each) for each in group.parked_tickets()}
            waiting = {id(each) for each in self.world.waiting if not each.is_done}
            assert parked == waiting, "a request waits that nobody will answer"
            assert group.leader is None or group.leader in group.members
            assert group.pending_sync_members <= set(group.members)

    # -- events --

    def begin(self) -> None:
        self._number += 1
        instance = f"i{self.random.randrange(3)}" if self.random.random() < 0.3 else None
        self.consumers.append(Consumer(self._number, instance))

    def some(self) -> Consumer | None:
        return self.random.choice(self.consumers) if self.consumers else None

    def go_on(self) -> None:
        """Let a client take its next step."""
        one = self.some()
        if one is None:
            return
        self.hear(one)
        if one.waits and self.random.random() < 0.9:
            return  # it waits for its answer, most of the time
        if one.generation < 0:
            fields = {} if one.instance is None else {"group_instance_id": one.instance}
            version = self.random.choice([5, 9]) if one.instance or self.random.random() < 0.7 else 1
            one.joining = self.world.join_group(one.id, version=version, **fields)
        elif one.members is not None:
            shares = [one.members[number % len(one.members)] for number in range(PARTITIONS)]
            assignments = {
                each: bytes(number for number in range(PARTITIONS) if shares[number] == each) for each in one.members
            }
            one.syncing = self.world.sync(one.id, one.generation, assignments if one.members != [""] else None)
            one.members = None
        else:
            code = self.world.stay(one.id, one.generation)
            if code != NONE:
                self.reset(one, forget=code in (25, 82))
        self.hear(one)

    def hear(self, one: Consumer) -> None:
        """Let a client read its responses."""
        if one.joining is not None and one.joining.is_done:
            joining, one.joining = one.joining, None
            if joining.error is not None or joining.code not in (NONE, MemberIdRequired.code):
                self.reset(one, forget=joining.error is None and joining.code != 27)
            else:
                one.id = joining.response.member_id
                if joining.code == NONE:
                    one.generation = joining.response.generation_id
                    leads = joining.response.leader == one.id and not joining.response.skip_assignment
                    one.members = [each.member_id for each in joining.response.members] if leads else [""]
                    one.owned = set()
        if one.syncing is not None and one.syncing.is_done:
            syncing, one.syncing = one.syncing, None
            if syncing.error is not None or syncing.code != NONE:
                self.reset(one, forget=False)
            else:
                one.owned = set(syncing.response.assignment)
                for partition in one.owned:
                    known = self.owners.setdefault((one.generation, partition), self.place(one))
                    assert known == self.place(one), "two members own a partition in one generation"

    def place(self, one: Consumer) -> str:
        return one.instance or one.id

    def reset(self, one: Consumer, *, forget: bool) -> None:
        one.generation, one.members, one.owned = -1, None, set()
        if forget:
            one.id = ""

    def commit(self) -> None:
        one = self.some()
        if one is None or one.generation < 0:
            return
        self.try_commit(one.id, one.generation)

    def try_commit(self, member: str, generation: int) -> None:
        partition = self.random.randrange(PARTITIONS)
        self._offset += 1
        before = self.world.state.groups.get(GROUP)
        if self.world.commit(partition, self._offset, member, generation) == NONE:
            self.committed[partition] = self._offset
            assert isinstance(before, ClassicGroup)
            assert member in before.members
            assert generation == before.generation

    def leave(self) -> None:
        one = self.some()
        if one is not None and one.id and not one.waits:
            self.world.go(one.id)
            self.consumers.remove(one)

    def die(self) -> None:
        one = self.some()
        if one is not None:
            self.consumers.remove(one)

    def speak_from_the_grave(self) -> None:
        self.try_commit(f"client-new-{self.random.randrange(1, 40)}", self.random.randrange(20))
        group = self.world.state.groups.get(GROUP)
        if isinstance(group, ClassicGroup) and group.members:
            old = self.random.randrange(group.generation) if group.generation else -1
            member = self.random.choice(sorted(group.members))
            assert self.world.sync(member, old, {member: bytes(range(PARTITIONS))}).code != NONE
            assert self.world.stay(member, old) != NONE
            assert self.world.commit(0, 1, member, old) != NONE

    def pass_time(self) -> None:
        self.world.pass_time(self.random.choice([1, 10, 100, 1_000, 2_000, 5_000, 5_000, 70_000]))

    def lose(self) -> None:
        self.world.fails = False
        self.world.lose()

    def fail_for_a_while(self) -> None:
        self.world.fails = True
        for _ in range(5):
            self.go_on()
        self.world.fails = False


@pytest.mark.parametrize("seed", range(80))
def test_a_random_walk(seed: int) -> None:
    Walk(seed).run()
