"""Scenarios of a simulated cluster. A seed determines the whole run, and the end checks every acknowledged write."""

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
    """Kill and restart processes, cut links, let clocks jump, slow disks down."""
    controllers, brokers, combined = ((3, 3, True), (3, 3, False), (5, 3, False), (5, 5, True), (3, 4, False))[seed % 5]
    with World(seed, controllers=controllers, brokers=brokers, combined=combined) as world:
        world.run(_run_with_faults(world, _inject_any_fault))


def power_failures(seed: int) -> None:
    """Let one machine after the other lose power, each after the previous one has recovered."""
    with World(seed, controllers=3, brokers=3, combined=seed % 2 == 0) as world:
        world.run(_run_with_faults(world, _inject_power_failure))


def last_in_sync(seed: int) -> None:
    """Let the last broker in the ISR lose power while the others have all committed records, too."""
    with World(seed, controllers=3, brokers=3, combined=False) as world:
        world.run(_run_with_faults(world, _inject_power_failure_of_last_in_sync_broker))


async def _run_with_faults(world: World, inject_fault: Any) -> None:
    await world.until(world.is_healthy, "the cluster is healthy")
    await world.create(PLAIN, partitions=PARTITIONS)
    await world.create(TRANSACTIONAL, partitions=PARTITIONS)
    await world.until(world.is_healthy, "the topics exist")
    random = Random(world.random.random())
    writers = [Writer(world.broker_ids, Random(random.random()), PLAIN, part) for part in range(PARTITIONS)]
    transactional = [
        TransactionalWriter(world.broker_ids, Random(random.random()), TRANSACTIONAL, PARTITIONS, f"id-{number}")
        for number in range(2)
    ]
    clients: list[Writer | TransactionalWriter] = [*writers, *transactional]
    tasks = [asyncio.ensure_future(client.run()) for client in clients]
    for _ in range(FAULTS):
        await asyncio.sleep(random.random() * 3)
        await inject_fault(world, random)
    world.repair()
    await world.until(world.is_healthy, "the cluster has recovered")
    for client in clients:
        client.is_stopped = True
    await asyncio.wait_for(asyncio.gather(*tasks), 120)
    await world.until(world.is_healthy, "the cluster is healthy at the end")
    await asyncio.sleep(5)  # for the last markers, and because followers get high watermarks one fetch later
    for writer in writers:
        _check_writer(world, writer)
    _check_transactions(world, transactional)


# -- faults --


async def _inject_any_fault(world: World, random: Random) -> None:
    machine = random.choice(list(world.machines.values()))
    others = [number for number in world.machines if number != machine.number]
    match random.randrange(14):
        case 0 | 1 | 2:
            if machine.is_up:
                machine.kill()
                if random.random() < 0.4:
                    machine.start()
        case 3 | 4:
            world.cut([machine.number], others)
        case 5:
            world.cut([machine.number], [*others, CLIENTS])
        case 6:
            world.network.cut |= {(other, machine.number) for other in others}  # it receives nothing
        case 7:
            world.network.cut |= {(machine.number, other) for other in others}  # it sends nothing
        case 8:
            world.cut([machine.number], [random.choice(others)])
        case 9:
            hosts = world.hosts()
            links = [(source, target) for source in hosts for target in hosts if source != target]
            world.network.cut |= {*random.sample(links, random.randint(1, len(links) // 3))}
        case 10:
            world.network.slow |= {machine.number}
        case 11:
            machine.skew_ms += random.randint(-20_000, 20_000)
        case 12:
            _kill_quorum_leader(world)
        case 13:
            for other in world.machines.values():
                if other.is_up:
                    other.kill()
    if random.random() < 0.5:
        await asyncio.sleep(random.random() * 6)
        world.repair()


def _kill_quorum_leader(world: World) -> None:
    for machine in world.machines.values():
        if machine.node is not None and machine.node.leads_quorum:
            machine.kill()


async def _inject_power_failure(world: World, random: Random) -> None:
    await world.until(world.is_healthy, "the cluster is healthy")
    machine: Machine = random.choice(list(world.machines.values()))
    machine.kill(power=True)
    await asyncio.sleep(random.random() * 5)
    world.repair()


async def _inject_power_failure_of_last_in_sync_broker(world: World, random: Random) -> None:
    """Cut all brokers but one from the controllers, and turn that one off: the controller fences it last."""
    await world.until(world.is_healthy, "the cluster is healthy")
    last = random.choice(world.broker_ids)
    controllers = [number for number in world.machines if number not in world.broker_ids]
    world.cut([broker for broker in world.broker_ids if broker != last], controllers)
    await asyncio.sleep(0.5 + random.random() * 2)
    world.machines[last].kill(power=True)
    await asyncio.sleep(3 + random.random() * 4)
    world.repair()


# -- final checks --


def _check_writer(world: World, writer: Writer) -> None:
    """Check that each acknowledged record exists once, at its offset and in order."""
    assert not writer.unexpected_errors, writer.unexpected_errors
    assert writer.acknowledged, "no record was acknowledged"
    offsets: dict[int, int] = {}
    for header, values in _batches(world, PLAIN, writer.partition):
        if header.producer_id == writer.producer_id:
            number = int(values[0].split(".")[0])
            assert number not in offsets, f"record {number} exists twice"
            offsets[number] = header.base_offset
    assert list(offsets) == sorted(offsets), "records are out of order"
    missing = {number: offset for number, offset in writer.acknowledged.items() if offsets.get(number) != offset}
    assert not missing, f"{PLAIN}-{writer.partition} lacks {missing}"


def _check_transactions(world: World, writers: list[TransactionalWriter]) -> None:
    """Check that each transaction is visible as a whole or not at all, as its outcome says, once and in order."""
    visible_parts: Counter[str] = Counter()
    for partition in range(PARTITIONS):
        visible = _read_committed(world, partition)
        assert len({*visible}) == len(visible), "a record exists twice"
        visible_parts.update(value.rpartition("/")[0] for value in visible)
        for writer in writers:
            own = [int(value.split("/")[1]) for value in visible if value.startswith(writer.name + "/")]
            assert own == sorted(own), "transactions are out of order"
    for writer in writers:
        for name, outcome in writer.outcomes.items():
            expected = {"commit": (PARTITIONS,), "abort": (0,), "unknown": (0, PARTITIONS)}[outcome]
            assert visible_parts[name] in expected, f"{name} ({outcome}) is in {visible_parts[name]} partitions"
    assert any("commit" in writer.outcomes.values() for writer in writers), "no transaction was committed"


def _read_committed(world: World, partition: int) -> list[str]:
    """Return the records that a `read_committed` consumer sees."""
    visible: list[str] = []
    open_transactions: dict[int, list[str]] = defaultdict(list)
    for header, values in _batches(world, TRANSACTIONAL, partition):
        if not header.is_control:
            open_transactions[header.producer_id] += values
        elif values[0] == "commit":
            visible += open_transactions.pop(header.producer_id, [])
        else:
            open_transactions.pop(header.producer_id, None)
    assert not open_transactions, f"hanging transactions in {TRANSACTIONAL}-{partition}: {open_transactions}"
    return visible


def _batches(world: World, topic: str, partition: int) -> list[tuple[Any, list[str]]]:
    """Return the batches of a partition: headers, and values or the type of the marker. All replicas must be equal."""
    copies = []
    for _, node in world.nodes():
        replica = node.partitions.by_name.get(topic, {}).get(partition)
        if replica is None:
            continue
        batches = []
        for segment in replica.log.segments:
            for _, header, block, start in segment.batches(0):
                records = list(read_records(block, start, header))
                if header.is_control:
                    values = ["commit" if records[0].key == b"\0\0\0\1" else "abort"]
                else:
                    values = [bytes(record.value or b"").decode() for record in records]
                batches.append((header, values))
        copies.append((replica.log.log_end_offset, replica.log.high_watermark, batches))
    assert len({(end, high) for end, high, _ in copies}) == 1, [(end, high) for end, high, _ in copies]
    contents = [[(header.base_offset, header.crc, values) for header, values in batches] for *_, batches in copies]
    assert all(content == contents[0] for content in contents), f"replicas of {topic}-{partition} differ"
    return copies[0][2]
