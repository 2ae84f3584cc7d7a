"""What happens to simulated clusters: each story is a seed's, and ends with a look at everything that was promised."""

import asyncio
from collections import Counter, defaultdict
from random import Random
from typing import Any, Final

from ottla.protocol.wire.records import read_records
from tests.chaos.simulate.clients import TransactionalWriter, Writer
from tests.chaos.simulate.machine import Machine
from tests.chaos.simulate.network import CLIENTS
from tests.chaos.simulate.world import World

PLAIN: Final = "plain"
TRANSACTIONAL: Final = "tx"
PARTITIONS: Final = 2
FAULTS: Final = 8


def faults(seed: int) -> None:
    """Processes die and come back, networks are cut in every way, clocks jump, disks are slow."""
    controllers, brokers, combined = ((3, 3, True), (3, 3, False), (5, 3, False), (5, 5, True), (3, 4, False))[seed % 5]
    with World(seed, controllers=controllers, brokers=brokers, combined=combined) as world:
        world.run(_live_through(world, _any_fault))


def power_failures(seed: int) -> None:
    """One machine after the other loses what it had not synced; each comes back before the next one goes."""
    with World(seed, controllers=3, brokers=3, combined=seed % 2 == 0) as world:
        world.run(_live_through(world, _power_failure))


STORIES: Final = {"faults": faults, "power-failures": power_failures}


async def _live_through(world: World, fault: Any) -> None:
    await world.until(world.all_well, "the cluster is there")
    await world.create(PLAIN, partitions=PARTITIONS)
    await world.create(TRANSACTIONAL, partitions=PARTITIONS)
    await world.until(world.all_well, "the topics are there")
    chance = Random(world.random.random())
    writers = [Writer(world.broker_ids, Random(chance.random()), PLAIN, part) for part in range(PARTITIONS)]
    transactional = [
        TransactionalWriter(world.broker_ids, Random(chance.random()), TRANSACTIONAL, PARTITIONS, f"id-{number}")
        for number in range(2)
    ]
    clients: list[Writer | TransactionalWriter] = [*writers, *transactional]
    working = [asyncio.ensure_future(client.run()) for client in clients]
    for _ in range(FAULTS):
        await asyncio.sleep(chance.random() * 3)
        await fault(world, chance)
    world.repair()
    await world.until(world.all_well, "all is well again")
    for client in clients:
        client.is_stopped = True
    await asyncio.wait_for(asyncio.gather(*working), 120)
    await world.until(world.all_well, "all is well in the end")
    await asyncio.sleep(5)  # the last markers, and what followers learn one fetch late
    for writer in writers:
        _check_writer(world, writer)
    _check_transactions(world, transactional)


# -- faults --


async def _any_fault(world: World, chance: Random) -> None:
    machine = chance.choice(list(world.machines.values()))
    others = [number for number in world.machines if number != machine.number]
    match chance.randrange(14):
        case 0 | 1 | 2:
            if machine.is_up:
                machine.kill()
                if chance.random() < 0.4:
                    machine.start()
        case 3 | 4:
            world.cut([machine.number], others)
        case 5:
            world.cut([machine.number], [*others, CLIENTS])
        case 6:
            world.network.cut |= {(other, machine.number) for other in others}  # it hears nobody
        case 7:
            world.network.cut |= {(machine.number, other) for other in others}  # it is heard by nobody
        case 8:
            world.cut([machine.number], [chance.choice(others)])
        case 9:
            everybody = world.everybody()
            ways = [(one, other) for one in everybody for other in everybody if one != other]
            world.network.cut |= {*chance.sample(ways, chance.randint(1, len(ways) // 3))}
        case 10:
            world.network.slow |= {machine.number}
        case 11:
            machine.skew_ms += chance.randint(-20_000, 20_000)
        case 12:
            _kill_leader_of_quorum(world)
        case 13:
            for each in world.machines.values():
                if each.is_up:
                    each.kill()
    if chance.random() < 0.5:
        await asyncio.sleep(chance.random() * 6)
        world.repair()


def _kill_leader_of_quorum(world: World) -> None:
    for machine in world.machines.values():
        if machine.node is not None and machine.node.leads_quorum:
            machine.kill()


async def _power_failure(world: World, chance: Random) -> None:
    await world.until(world.all_well, "all is well")
    machine: Machine = chance.choice(list(world.machines.values()))
    machine.kill(power=True)
    await asyncio.sleep(chance.random() * 5)
    world.repair()


# -- what must be there in the end --


def _check_writer(world: World, writer: Writer) -> None:
    """Everything acknowledged is there, once, at its offset, in order."""
    assert not writer.surprises, writer.surprises
    assert writer.acknowledged, "nothing was ever acknowledged"
    found: dict[int, int] = {}
    for header, values in _batches(world, PLAIN, writer.partition):
        if header.producer_id == writer.producer_id:
            number = int(values[0].split(".")[0])
            assert number not in found, f"{number} is there twice"
            found[number] = header.base_offset
    assert list(found) == sorted(found), "records are out of order"
    missing = {number: at for number, at in writer.acknowledged.items() if found.get(number) != at}
    assert not missing, f"{PLAIN}-{writer.partition} lacks {missing}"


def _check_transactions(world: World, writers: list[TransactionalWriter]) -> None:
    """Each is there as a whole or not at all, as its writer was told, once and in order."""
    seen: Counter[str] = Counter()
    for partition in range(PARTITIONS):
        visible = _committed(world, partition)
        assert len({*visible}) == len(visible), "a record is there twice"
        seen.update(value.rpartition("/")[0] for value in visible)
        for writer in writers:
            own = [int(value.split("/")[1]) for value in visible if value.startswith(writer.name + "/")]
            assert own == sorted(own), "transactions are out of order"
    for writer in writers:
        for name, outcome in writer.outcomes.items():
            expected = {"commit": (PARTITIONS,), "abort": (0,), "unknown": (0, PARTITIONS)}[outcome]
            assert seen[name] in expected, f"{name} ({outcome}) is there {seen[name]} times"
    assert any("commit" in writer.outcomes.values() for writer in writers), "nothing was ever committed"


def _committed(world: World, partition: int) -> list[str]:
    """What somebody sees who reads what is committed."""
    visible: list[str] = []
    opened: dict[int, list[str]] = defaultdict(list)
    for header, values in _batches(world, TRANSACTIONAL, partition):
        if not header.is_control:
            opened[header.producer_id] += values
        elif values[0] == "commit":
            visible += opened.pop(header.producer_id, [])
        else:
            opened.pop(header.producer_id, None)
    assert not opened, f"transactions hang on {TRANSACTIONAL}-{partition}: {opened}"
    return visible


def _batches(world: World, topic: str, partition: int) -> list[tuple[Any, list[str]]]:
    """All batches of a partition: headers, and the values or what the marker says. All replicas are the same."""
    copies = []
    for _, node in world.nodes():
        held = node.partitions.by_name.get(topic, {}).get(partition)
        if held is None:
            continue
        found = []
        for segment in held.log.segments:
            for _, header, block, at in segment.batches(0):
                each = list(read_records(block, at, header))
                if header.is_control:
                    values = ["commit" if each[0].key == b"\0\0\0\1" else "abort"]
                else:
                    values = [bytes(record.value or b"").decode() for record in each]
                found.append((header, values))
        copies.append((held.log.log_end_offset, held.log.high_watermark, found))
    assert len({(end, high) for end, high, _ in copies}) == 1, [(end, high) for end, high, _ in copies]
    contents = [[(header.base_offset, header.crc, values) for header, values in found] for *_, found in copies]
    assert all(content == contents[0] for content in contents), f"replicas of {topic}-{partition} differ"
    return copies[0][2]
