"""The simulation itself: one seed gives one history, and whatever breaks a promise is found."""

import asyncio
import logging

import pytest

from tests.chaos.simulate.promises import Promises
from tests.chaos.simulate.world import World
from tests.support.simulated_disk import Survival


async def _come_and_go(world: World) -> None:
    await world.until(world.all_well, "the cluster is there")
    await world.create("t", partitions=2)
    world.machines[1].kill()
    await asyncio.sleep(2)
    world.repair()
    await world.until(world.all_well, "all is well again")


def _history(seed: int) -> tuple[int, float, int]:
    with World(seed) as world:
        world.run(_come_and_go(world))
        return world.promises.committed_metadata, world.loop.now_s, world.promises.quorum_epochs


def test_one_seed_gives_one_history() -> None:
    first = _history(5)
    assert _history(5) == first
    assert _history(6) != first


def test_an_error_that_a_node_logs_ends_the_story() -> None:
    async def story(world: World) -> None:
        await asyncio.sleep(1)
        logging.getLogger("ottla.node").error("something that nobody expected")
        await asyncio.sleep(1_000)

    with World(1) as world, pytest.raises(AssertionError, match="nobody expected"):
        world.run(story(world))


def test_a_node_that_fails_ends_the_story() -> None:
    async def story(world: World) -> None:
        await world.until(world.all_well, "the cluster is there")
        node = world.machines[2].node
        assert node is not None
        world.loop.call_soon(node._fail, "it cannot go on", ValueError("broken"))
        await asyncio.sleep(1_000)

    with World(1) as world, pytest.raises(AssertionError, match="it cannot go on"):
        world.run(story(world))


def test_what_was_synced_survives_the_loss_of_power() -> None:
    """All machines at once, with nothing left that was not synced: the metadata are all there."""

    async def story(world: World) -> None:
        await world.until(world.all_well, "the cluster is there")
        await world.create("t", partitions=2)
        for machine in world.machines.values():
            machine.kill(power=True, survival=Survival.NONE)
        world.repair()
        await world.until(lambda: all("t" in node.image.topics for _, node in world.nodes()), "the topic is known")
        await world.until(world.all_well, "all is well again")

    with World(2) as world:
        world.run(story(world))


def test_promises_are_held_to() -> None:
    promises = Promises()
    promises.leads_quorum(1, 7)
    promises.leads_quorum(2, 8)
    with pytest.raises(AssertionError, match="both 1 and 3"):
        promises.leads_quorum(3, 7)
    promises.metadata_committed(10, 99)
    promises.metadata_committed(10, 99)
    with pytest.raises(AssertionError, match="differ before 10"):
        promises.metadata_committed(10, 98)
