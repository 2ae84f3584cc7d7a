"""Clusters on simulated time: acknowledged records exist exactly once after any failure of brokers and network."""

import pytest

from tests.support.simulated_disk import Survival
from tests.unit.replication.simulated_cluster import World

TOPIC = "t"


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_lost_whatever_happens_to_brokers(seed: int) -> None:
    world = World(seed)
    world.create(TOPIC, partitions=2, configs={"min.insync.replicas": "2"})
    for partition in range(2):
        world.write(TOPIC, partition)
    random = world.random
    for _ in range(12):
        world.run(random.randint(50, 1_500))
        world.check_prefixes()
        number = random.randint(1, 3)
        broker = world.brokers[number]
        match random.randrange(5):
            case 0 | 1:
                world.kill(number) if broker.is_alive else world.start(number)
            case 2:
                world.cut_off ^= {number}
            case 3:
                world.slow ^= {number}
            case _:
                world.cut_off.clear()
    world.heal()
    world.check_prefixes()
    world.check()
    assert all(writer.acknowledged for writer in world.writers)


@pytest.mark.parametrize("seed", range(10))
def test_brokers_may_lose_power_one_after_another(seed: int) -> None:
    world = World(seed)
    world.create(TOPIC, partitions=2, configs={"min.insync.replicas": "2"})
    for partition in range(2):
        world.write(TOPIC, partition)
    for _ in range(5):
        world.run(world.random.randint(100, 1_000))
        number = world.random.randint(1, 3)
        world.kill(number, power=True)
        world.run(world.random.randint(10, 3_000))
        world.check_prefixes()
        world.heal()
    world.check()


@pytest.mark.parametrize("seed", range(10))
def test_partitions_move_while_brokers_come_and_go(seed: int) -> None:
    world = World(seed, brokers=5)
    world.create(TOPIC, configs={"min.insync.replicas": "2"})
    writer = world.write(TOPIC, 0)
    for _ in range(5):
        world.run(world.random.randint(100, 1_000))
        world.move(TOPIC, 0, *world.random.sample(range(1, 6), 3))
        world.run(world.random.randint(10, 500))
        number = world.random.randint(1, 5)
        world.kill(number)
        world.run(world.random.randint(10, 2_000))
        world.check_prefixes()
        world.start(number)
        if world.random.random() < 0.5:
            world.slow ^= {world.random.randint(1, 5)}
    world.slow.clear()
    world.run_until(lambda: not any(each.is_reassigning for each in world.assignments()))
    world.heal()
    world.check()
    assert writer.acknowledged


def test_a_leader_that_lost_records_of_its_epoch_gets_them_back() -> None:
    world = World(seed=1)
    world.create(TOPIC)
    world.write(TOPIC, 0)
    world.run(500)
    world.kill(world.leader(TOPIC, 0))
    world.heal()
    world.run(500)
    second = world.leader(TOPIC, 0)
    log = world.brokers[second].log(TOPIC, 0)
    assert log is not None
    assert (log.epochs.latest > 0, log.recovery_point) == (True, 0), (
        "it began its term with records that are not synced"
    )
    world.kill(second, power=True, survival=Survival.NONE)
    world.heal()
    world.check()
