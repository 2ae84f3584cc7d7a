"""Whole quorums on simulated time: no fault loses a committed record, and the quorum recovers from each."""

from random import Random

import pytest

from tests.unit.metadata.consensus.simulation import SimulatedNode, Simulation


def work(sim: Simulation, ms: int, every_ms: int = 100) -> None:
    """Let the current leader append a record at random times."""
    for _ in range(ms // every_ms):
        leader = sim.leader()
        if leader is not None and not leader.stopped:
            sim.propose(leader, b"%d" % sim.now)
        sim.run(every_ms)


def disturb(sim: Simulation, chaos: Random) -> None:
    """Inject one fault, perhaps during a write."""
    leader = sim.leader()
    if leader is not None and not leader.stopped and chaos.random() < 0.7:
        for _ in range(chaos.randrange(4)):
            if leader.is_leader:
                sim.propose(leader, b"%d" % chaos.randrange(1000))
            sim.run(chaos.randrange(15))
    node = chaos.choice(list(sim.nodes.values()))
    leader = sim.leader()
    match chaos.randrange(16):
        case 0 | 1:
            if node.consensus is not None:
                node.crash()
        case 2 | 3:
            if node.consensus is None:
                node.start()
        case 4:
            sim.network.isolate(node.id)
        case 5:
            sim.network.isolate(*chaos.sample(sorted(sim.nodes), len(sim.nodes) // 2))
        case 6:
            sim.network.heal()
        case 7:
            sim.network.loss, sim.network.duplication = chaos.random() / 4, chaos.random() / 4
        case 8:
            node.take_snapshot(trim=chaos.random() < 0.7)
        case 9:
            if leader is not None:
                leader.crash()
        case 10:
            if leader is not None and leader.consensus is not None:
                epoch = leader.consensus.epoch
                leader.step(lambda consensus: consensus.resign(epoch, sim.now))
        case 11:
            power_failure(sim)
        case 12:
            if leader is not None:
                sim.network.isolate(leader.id)
        case 13:
            sim.network.cut |= {(node.id, other) for other in sim.nodes}  # it cannot send
        case 14:
            sim.network.cut |= {(other, node.id) for other in sim.nodes}  # it cannot receive
        case 15:
            ways = [(one, other) for one in sim.nodes for other in sim.nodes if one != other]
            sim.network.cut |= {*chaos.sample(ways, len(ways) // 4)}


def power_failure(sim: Simulation) -> None:
    """Crash all nodes at once; each loses its unsynced writes."""
    for node in sim.nodes.values():
        if node.consensus is not None:
            node.crash()
    for node in sim.nodes.values():
        node.start()


def recover(sim: Simulation) -> None:
    """Assert that after healing a leader commits within bounded time, and all nodes apply it."""
    sim.network.heal()
    for node in sim.nodes.values():
        if node.consensus is None:
            node.start()
    leader = sim.run_until_leader(ms=20_000)
    offset = sim.propose(leader, b"after")
    assert sim.run(20_000, until=lambda: sim.committed > offset) or sim.leader() is not leader
    leader = sim.run_until_leader(ms=20_000)
    goal = sim.committed
    assert sim.run(20_000, until=lambda: all(node.applied >= goal for node in sim.nodes.values()))


@pytest.mark.parametrize("seed", range(120))
def test_chaos_loses_nothing(seed: int) -> None:
    sim = Simulation(seed=seed, voters=(1, 3, 3, 3, 5)[seed % 5], observers=seed % 2, static=seed % 3 == 0)
    chaos = Random(seed)
    for _ in range(14):
        work(sim, chaos.randrange(12) * 100)
        disturb(sim, chaos)
    recover(sim)


def change_voters(sim: Simulation, chaos: Random) -> None:
    leader, node = sim.leader(), chaos.choice(list(sim.nodes.values()))
    if leader is not None and leader.consensus is not None:
        if leader.consensus.voters.is_voter(node.key):
            sim.remove_voter(leader, node.key)
        else:
            sim.add_voter(leader, node)


@pytest.mark.parametrize("seed", range(60))
def test_voters_change_amid_chaos(seed: int) -> None:
    sim = Simulation(seed=seed, voters=3, observers=2)
    chaos = Random(seed)
    for _ in range(10):
        work(sim, 100 + chaos.randrange(5) * 100)
        for _ in range(chaos.randrange(3)):
            change_voters(sim, chaos)
        if chaos.random() < 0.5:
            disturb(sim, chaos)
    recover(sim)


@pytest.mark.parametrize("seed", range(20))
def test_an_isolated_leader_commits_nothing_and_resigns(seed: int) -> None:
    sim = Simulation(seed=seed, voters=3)
    old = sim.run_until_leader()
    sim.run(1_000)
    committed = sim.committed
    sim.network.isolate(old.id)
    offset = sim.propose(old, b"lost")
    assert offset >= committed
    sim.run_until_leader(other_than=old)
    sim.run(3_500)
    assert not old.is_leader
    assert old.applied == committed
    sim.network.heal()
    sim.run(10_000)
    assert old.applied == sim.committed
    assert not any(b"lost" in entry.data for entry in old.log.entries)


@pytest.mark.parametrize("seed", range(20))
def test_an_isolated_follower_returns_without_an_election(seed: int) -> None:
    """With pre-votes (KIP-996) an isolated node does not raise its epoch, so the leader stays."""
    sim = Simulation(seed=seed, voters=3)
    leader = sim.run_until_leader()
    sim.run(2_000)
    assert leader.consensus is not None
    epoch = leader.consensus.epoch
    away = next(node for node in sim.nodes.values() if node is not leader)
    sim.network.isolate(away.id)
    work(sim, 10_000)
    sim.network.heal()
    work(sim, 5_000)
    assert leader.is_leader
    assert leader.consensus.epoch == epoch
    assert sim.run(1_000, until=lambda: away.applied == sim.committed)


@pytest.mark.parametrize("seed", range(10))
def test_a_member_without_pre_votes_can_share_the_quorum(seed: int) -> None:
    sim = Simulation(seed=seed, voters=3, old=(2,), static=seed % 2 == 0)
    first = sim.run_until_leader()
    sim.run(1_000)
    first.crash()
    second = sim.run_until_leader(other_than=first)
    first.start()
    offset = sim.propose(second)
    assert sim.run(5_000, until=lambda: all(node.applied > offset for node in sim.nodes.values()))


@pytest.mark.parametrize("seed", range(30))
def test_a_dead_leader_is_replaced_before_any_timeout(seed: int) -> None:
    """Its connections break, so the others need not wait for a timeout."""
    sim = Simulation(seed=seed, voters=3 if seed % 2 else 5)
    leader = sim.run_until_leader()
    work(sim, 1_000)
    sim.disk_ms = 6
    leader.crash()
    sim.run_until_leader(other_than=leader, ms=1_500)


@pytest.mark.parametrize("seed", range(10))
def test_occasional_broken_connections_do_not_replace_the_leader(seed: int) -> None:
    sim = Simulation(seed=seed, voters=3)
    leader = sim.run_until_leader()
    sim.run(2_000)
    assert leader.consensus is not None
    epoch = leader.consensus.epoch
    for _ in range(20):
        leader.hang_up()
        work(sim, 300)
    assert leader.is_leader
    assert leader.consensus.epoch == epoch


@pytest.mark.parametrize("seed", range(10))
def test_a_leader_that_stops_hands_over_at_once(seed: int) -> None:
    sim = Simulation(seed=seed, voters=3)
    leader = sim.run_until_leader()
    work(sim, 1_000)
    leader.step(lambda consensus: consensus.shutdown(5_000, sim.now))
    assert sim.run(1_500, until=lambda: leader.stopped), "faster than any election timeout after another"
    sim.run_until_leader(other_than=leader, ms=1_500)


@pytest.mark.parametrize("seed", range(10))
def test_a_single_voter_leads_at_once(seed: int) -> None:
    sim = Simulation(seed=seed, voters=1, observers=1)
    assert sim.nodes[1].is_leader
    sim.run(100)
    assert sim.committed > 0
    offset = sim.propose(sim.nodes[1])
    assert sim.run(2_000, until=lambda: sim.nodes[2].applied > offset)
    sim.nodes[1].crash()
    sim.nodes[1].start()
    assert sim.nodes[1].is_leader


@pytest.mark.parametrize("seed", range(10))
def test_a_new_node_joins_by_snapshot(seed: int) -> None:
    sim = Simulation(seed=seed, voters=3, observers=1)
    late = sim.nodes[4]
    late.crash()
    leader = sim.run_until_leader()
    work(sim, 3_000)
    for node in sim.nodes.values():
        if node.consensus is not None:
            node.take_snapshot(trim=True)
    late.start()
    assert sim.run(5_000, until=lambda: late.applied == sim.committed)
    assert late.log.start_offset > 0
    sim.run(1_000)  # the leader learns of it with its next fetch
    ticket = sim.add_voter(leader, late)
    assert sim.run(3_000, until=lambda: ticket in sim.answers)
    assert sim.answers[ticket].error_code == 0
    assert late.consensus is not None
    assert late.consensus.voters.is_voter(late.key)


@pytest.mark.parametrize("seed", range(10))
def test_a_removed_leader_commits_its_removal_and_resigns(seed: int) -> None:
    sim = Simulation(seed=seed, voters=3)
    leader = sim.run_until_leader()
    work(sim, 1_000)
    ticket = sim.remove_voter(leader, leader.key)
    assert sim.run(3_000, until=lambda: ticket in sim.answers)
    assert sim.answers[ticket].error_code == 0
    successor = sim.run_until_leader(other_than=leader)
    assert successor.consensus is not None
    assert not successor.consensus.voters.is_voter(leader.key)
    work(sim, 3_000)
    assert sim.run(2_000, until=lambda: leader.applied == sim.committed), "it follows on as an observer"


@pytest.mark.parametrize("seed", range(10))
def test_a_controller_auto_joins_and_replaces_its_lost_disk(seed: int) -> None:
    sim = Simulation(seed=seed, voters=3)
    leader = sim.run_until_leader()
    work(sim, 1_000)
    lost = next(node for node in sim.nodes.values() if node is not leader)
    lost.crash()
    fresh = SimulatedNode(sim, lost.key._replace(directory=b"another disk....."[:16]), auto_join=True)
    sim.nodes[lost.id] = fresh
    fresh.incarnation = lost.incarnation
    fresh.start()

    def joined() -> bool:
        now = sim.leader()
        return now is not None and now.consensus is not None and now.consensus.voters.is_voter(fresh.key)

    assert sim.run(30_000, until=joined)
    assert len(leader.consensus.voters) == 3  # type: ignore[union-attr]
