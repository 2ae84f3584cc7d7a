"""Replication between real nodes: no acknowledged record is lost or duplicated under failures."""

from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.acknowledged import QUICK, Acknowledged
from tests.support.ottla_cluster import OttlaCluster, eventually

TOPIC = "t"
APART = {1: "controller", 2: "broker", 3: "broker", 4: "broker"}
SETTINGS = {"min.insync.replicas": "2", "replica.lag.time.max.ms": "3000", "broker.session.timeout.ms": "3000"}


def leaders(cluster: OttlaCluster, topic: str = TOPIC) -> dict[int, int]:
    found = cluster.ask(lambda admin: admin.topic(topic))
    return {number: partition.leader for number, partition in found.partitions.items()}


def in_sync(cluster: OttlaCluster, topic: str = TOPIC) -> dict[int, set[int]]:
    found = cluster.ask(lambda admin: admin.topic(topic))
    return {number: {*partition.isr} for number, partition in found.partitions.items()}


def all_in_sync(cluster: OttlaCluster, topic: str = TOPIC, replicas: int = 3) -> bool:
    return all(len(isr) == replicas for isr in in_sync(cluster, topic).values())


def wait_until_in_sync(cluster: OttlaCluster, topic: str = TOPIC, replicas: int = 3) -> None:
    eventually(lambda: all_in_sync(cluster, topic, replicas), f"{replicas} replicas of {topic} are in sync")


def stored(cluster: OttlaCluster, node: int, name: str) -> bytes:
    """Read a partition's log from a node's files."""
    files = sorted((cluster.nodes[node].directory / name).glob("*.log"))
    return b"".join(file.read_bytes() for file in files)


def check_files(cluster: OttlaCluster, *, partitions: int = 3, topic: str = TOPIC) -> None:
    """Check that all replicas are equal byte for byte. Stop the nodes first, so that all is written."""
    for partition in range(partitions):
        name = f"{topic}-{partition}"
        copies = {
            number: stored(cluster, number, name)
            for number, node in cluster.nodes.items()
            if (node.directory / name).exists()
        }
        first = next(iter(copies.values()))
        assert first, f"{name} is empty"
        assert all(copy == first for copy in copies.values()), {n: len(copy) for n, copy in copies.items()}


def create(cluster: OttlaCluster, partitions: int = 3, replicas: int = 3) -> None:
    cluster.ask(lambda admin: admin.create_topic(TOPIC, partitions=partitions, replicas=replicas))
    wait_until_in_sync(cluster, replicas=replicas)


def test_nothing_acknowledged_is_lost_when_leaders_are_killed(tmp_path: Path) -> None:
    with OttlaCluster(tmp_path, settings=SETTINGS).running() as cluster:
        create(cluster)
        with Acknowledged(cluster.address, TOPIC, partitions=3) as producing:
            for partition in (0, 1, 2):
                producing.wait_for(500)
                victim = leaders(cluster)[partition]
                cluster.kill(victim)
                producing.wait_for(500)
                cluster.start(victim)
                wait_until_in_sync(cluster)
        producing.check()
        cluster.stop(*cluster.alive)
    check_files(cluster)


def test_clients_do_not_notice_a_rolling_restart(tmp_path: Path) -> None:
    with OttlaCluster(tmp_path, settings=SETTINGS).running() as cluster:
        create(cluster)
        with Acknowledged(cluster.address, TOPIC, partitions=3) as producing:
            for node in cluster.nodes:
                producing.wait_for(300)
                cluster.restart(node)
                wait_until_in_sync(cluster)
            producing.wait_for(300)
        producing.check()
        cluster.stop(*cluster.alive)
    check_files(cluster)


def test_a_suspended_leader_loses_leadership(tmp_path: Path) -> None:
    with OttlaCluster(tmp_path, settings=SETTINGS).running() as cluster:
        create(cluster)
        with Acknowledged(cluster.address, TOPIC, partitions=3) as producing:
            producing.wait_for(300)
            old = leaders(cluster)[0]
            cluster.pause(old)
            producing.wait_for(1000)  # of the other partitions, and of this one with another leader
            others = [number for number in cluster.nodes if number != old]
            eventually(lambda: _leader_seen_by(cluster, others[0]) in others, "the partition has another leader")
            producing.wait_for(1000)
            cluster.resume(old)
            wait_until_in_sync(cluster)
        producing.check()
        cluster.stop(*cluster.alive)
    check_files(cluster)


def _leader_seen_by(cluster: OttlaCluster, node: int) -> int:
    return cluster.ask(lambda admin: admin.topic(TOPIC), node=node).partitions[0].leader


def test_a_lagging_follower_leaves_the_isr_and_rejoins(tmp_path: Path) -> None:
    slow = {
        "replica.lag.time.max.ms": "1000",
        "broker.session.timeout.ms": "60000",
        "replica.socket.timeout.ms": "1000",
    }
    with OttlaCluster(tmp_path, roles=APART, settings={**SETTINGS, **slow}).running() as cluster:
        create(cluster)
        with Acknowledged(cluster.address, TOPIC, partitions=3) as producing:
            producing.wait_for(300)
            cluster.pause(4)
            kept = [number for number, leader in leaders_at(cluster, 2).items() if leader != 4]
            eventually(
                lambda: all(4 not in isr_at(cluster, 2)[number] for number in kept),
                "the follower that hangs has left the ISR",
            )
            producing.wait_for(300)  # acks=all goes on without it
            cluster.resume(4)
            wait_until_in_sync(cluster)
        producing.check()
        cluster.stop(*cluster.alive)
    check_files(cluster)


def leaders_at(cluster: OttlaCluster, node: int) -> dict[int, int]:
    found = cluster.ask(lambda admin: admin.topic(TOPIC), node=node)
    return {number: partition.leader for number, partition in found.partitions.items()}


def isr_at(cluster: OttlaCluster, node: int) -> dict[int, set[int]]:
    found = cluster.ask(lambda admin: admin.topic(TOPIC), node=node)
    return {number: {*partition.isr} for number, partition in found.partitions.items()}


def test_partitions_are_reassigned_under_load(tmp_path: Path) -> None:
    roles = {1: "controller", 2: "broker", 3: "broker", 4: "broker", 5: "broker"}
    with OttlaCluster(tmp_path, roles=roles, settings={"replica.lag.time.max.ms": "3000"}).running() as cluster:
        cluster.ask(lambda admin: admin.create_topic(TOPIC, assignment=[[2, 3], [3, 4]]))
        wait_until_in_sync(cluster, replicas=2)
        with Acknowledged(cluster.address, TOPIC, partitions=2) as producing:
            producing.wait_for(1000)
            refused = cluster.ask(lambda admin: admin.reassign({(TOPIC, 0): [4, 5], (TOPIC, 1): [5, 2]}))
            assert not any(refused.values()), refused
            eventually(lambda: not cluster.ask(lambda admin: admin.reassignments()), "all are where they should be")
            eventually(lambda: in_sync(cluster) == {0: {4, 5}, 1: {5, 2}}, "the new replicas are in sync")
            producing.wait_for(500)
        producing.check()
        for node, name in ((2, f"{TOPIC}-0"), (3, f"{TOPIC}-0"), (3, f"{TOPIC}-1"), (4, f"{TOPIC}-1")):
            path = cluster.nodes[node].directory / name
            eventually(partial(_is_gone, path), f"{path} is gone")
        cluster.stop(*cluster.alive)
    check_files(cluster, partitions=2)


def _is_gone(path: Path) -> bool:
    return not path.exists()


def test_acks_all_fails_below_min_insync_replicas(tmp_path: Path) -> None:
    with OttlaCluster(tmp_path, roles=APART, settings=SETTINGS).running() as cluster:
        cluster.ask(lambda admin: admin.create_topic(TOPIC, assignment=[[2, 3, 4]]))
        wait_until_in_sync(cluster)
        assert write(cluster, "all", b"with three") == ""
        for follower in (3, 4):
            cluster.kill(follower)
        eventually(lambda: in_sync(cluster) == {0: {2}}, "only the leader is left in sync")
        assert write(cluster, "all", b"with one", timeout_ms=2000) == "_MSG_TIMED_OUT"
        assert write(cluster, "1", b"unsafe") == ""
        assert ends(cluster) == (0, 1), "what is on one replica only must not be seen"
        cluster.start(3)
        eventually(lambda: ends(cluster) == (0, 2), "with two replicas it is seen")
        assert write(cluster, "all", b"with two") == ""


def test_an_unclean_election_truncates_the_old_leaders_records(tmp_path: Path) -> None:
    slow = {
        "replica.lag.time.max.ms": "1000",
        "broker.session.timeout.ms": "60000",
        "replica.socket.timeout.ms": "1000",
    }
    with OttlaCluster(tmp_path, roles=APART, settings=slow).running() as cluster:
        cluster.ask(lambda admin: admin.create_topic(TOPIC, assignment=[[2, 3]]))
        wait_until_in_sync(cluster, replicas=2)
        assert write(cluster, "all", *(b"both have %d" % number for number in range(20))) == ""
        cluster.pause(3)
        assert write(cluster, "1", *(b"only one has %d" % number for number in range(10))) == ""
        eventually(lambda: isr_at(cluster, 2) == {0: {2}}, "the follower has left the ISR")
        assert write(cluster, "all", *(b"only one has %d" % number for number in range(10, 20))) == ""
        cluster.kill(2)
        cluster.resume(3)
        eventually(lambda: leaders_at(cluster, 3) == {0: -1}, "there is no leader")

        def elected() -> bool:
            """Retry: the broker may notice the lost leader before the controller does, which then holds no election."""
            refused = cluster.ask(lambda admin: admin.elect_leaders([(TOPIC, 0)], unclean=True), node=3)
            assert refused == {(TOPIC, 0): None}
            return leaders_at(cluster, 3) == {0: 3}

        eventually(elected, "the one that is there leads")
        assert write(cluster, "all", b"after the loss") == ""
        cluster.start(2)
        wait_until_in_sync(cluster, replicas=2)
        assert ends(cluster) == (0, 21)
        cluster.stop(*cluster.alive)
    check_files(cluster, partitions=1)


def test_leadership_moves_when_the_leaders_disk_fails(tmp_path: Path) -> None:
    disks = [tmp_path / "node2" / name for name in ("logs", "more")]
    node_settings = {
        2: {"log.dirs": ",".join(map(str, disks)), "metadata.log.dir": str(tmp_path / "node2" / "metadata")}
    }
    cluster = OttlaCluster(tmp_path, roles=APART, settings=SETTINGS, node_settings=node_settings, tolerant=True)
    with cluster.running():
        settings = {"segment.bytes": str(1 << 20)}
        cluster.ask(lambda admin: admin.create_topic(TOPIC, assignment=[[2, 3, 4]] * 2, settings=settings))
        wait_until_in_sync(cluster)
        with Acknowledged(cluster.address, TOPIC, partitions=2, value_bytes=10_000) as producing:
            producing.wait_for(50)
            lost = next(disk for disk in disks if (disk / f"{TOPIC}-0").exists())
            kept = next(disk for disk in disks if (disk / f"{TOPIC}-1").exists())
            assert lost != kept, "partitions are spread over the disks"
            lost.rename(tmp_path / "gone")  # the next segment cannot be made any more
            eventually(lambda: leaders(cluster)[0] in (3, 4), "another broker leads what was on the disk")
            producing.wait_for(100)
            assert leaders(cluster)[1] == 2, "what is on the other disk is served as before"
            assert in_sync(cluster) == {0: {3, 4}, 1: {2, 3, 4}}
        producing.check()


def write(cluster: OttlaCluster, acks: str, *values: bytes, timeout_ms: int = 30_000) -> str:
    """Produce records, and return the name of the error if there is one."""
    running = ",".join(node.address for node in cluster.nodes.values() if node.is_broker and node.process is not None)
    producer = Producer({"bootstrap.servers": running, "acks": acks, "delivery.timeout.ms": timeout_ms, **QUICK})
    wrong: list[str] = []
    for value in values:
        producer.produce(
            TOPIC, value, partition=0, on_delivery=lambda error, _: wrong.append(error.name() if error else "")
        )
    producer.flush(timeout_ms / 1000 + 10)
    assert len(wrong) == len(values), "some were not answered"
    return next(filter(None, wrong), "")


def ends(cluster: OttlaCluster) -> tuple[int, int]:
    """Return the start and end offsets of the partition for consumers."""
    consumer = Consumer({"bootstrap.servers": cluster.address, "group.id": "ends", **QUICK})
    try:
        first, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=30)
    finally:
        consumer.close()
    return first, end
