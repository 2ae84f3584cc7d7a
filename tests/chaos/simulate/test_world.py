"""The simulation itself: a seed determines a run, and violated invariants are detected."""

import asyncio
import logging

import pytest

from tests.chaos.simulate.invariants import Invariants
from tests.chaos.simulate.world import World
from tests.support.simulated_disk import Survival


async def _restart_a_node(world: World) -> None:
    await world.until(world.is_healthy, "the cluster is healthy")
    await world.create("t", partitions=2)
    world.machines[1].kill()
    await asyncio.sleep(2)
    world.repair()
    await world.until(world.is_healthy, "the cluster has recovered")


def _history(seed: int) -> tuple[int, float, int]:
    with World(seed) as world:
        world.run(_restart_a_node(world))
        return world.invariants.committed_metadata, world.loop.now_s, world.invariants.quorum_epochs


def test_a_seed_determines_the_history() -> None:
    first = _history(5)
    assert _history(5) == first
    assert _history(6) != first


def test_a_logged_error_fails_the_scenario() -> None:
    async def scenario(world: World) -> None:
        await asyncio.sleep(1)
        logging.getLogger("ottla.node").error("an unexpected error")
        await asyncio.sleep(1_000)

    with World(1) as world, pytest.raises(AssertionError, match="an unexpected error"):
        world.run(scenario(world))


def test_a_failed_node_fails_the_scenario() -> None:
    async def scenario(world: World) -> None:
        await world.until(world.is_healthy, "the cluster is healthy")
        node = world.machines[2].node
        assert node is not None
        world.loop.call_soon(node._fail, "it cannot continue", ValueError("broken"))
        await asyncio.sleep(1_000)

    with World(1) as world, pytest.raises(AssertionError, match="it cannot continue"):
        world.run(scenario(world))


def test_synced_metadata_survive_power_loss() -> None:
    """All machines lose power at once, and all unsynced writes are lost."""

    async def scenario(world: World) -> None:
        await world.until(world.is_healthy, "the cluster is healthy")
        await world.create("t", partitions=2)
        for machine in world.machines.values():
            machine.kill(power=True, survival=Survival.NONE)
        world.repair()
        await world.until(
            lambda: all("t" in node.image.topics for _, node in world.nodes()), "all nodes have the topic"
        )
        await world.until(world.is_healthy, "the cluster has recovered")

    with World(2) as world:
        world.run(scenario(world))


def test_violated_invariants_are_detected() -> None:
    invariants = Invariants()
    invariants.check_quorum_leader(1, 7)
    invariants.check_quorum_leader(2, 8)
    with pytest.raises(AssertionError, match="both 1 and 3"):
        invariants.check_quorum_leader(3, 7)
    invariants.check_metadata(10, 99)
    invariants.check_metadata(10, 99)
    with pytest.raises(AssertionError, match="differ before offset 10"):
        invariants.check_metadata(10, 98)
