"""Network partitions in one or both directions: no acknowledged record is lost, and the majority stays available."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.faults.network import Network
from tests.support.acknowledged import Acknowledged
from tests.support.ottla_cluster import OttlaCluster, eventually
from tests.unit.node.cluster.test_replication import SETTINGS, TOPIC, create, leaders_at, wait_until_in_sync

QUICK = {**SETTINGS, "broker.heartbeat.interval.ms": "500", "replica.socket.timeout.ms": "2000"}


@pytest.fixture
def network() -> Iterator[Network]:
    with Network([1, 2, 3]) as hosts:
        yield hosts


@pytest.fixture
def cluster(tmp_path: Path, network: Network) -> Iterator[OttlaCluster]:
    with OttlaCluster(tmp_path, settings=QUICK, network=network).running() as running:
        create(running)
        yield running


def test_partitions_in_each_direction_lose_nothing(network: Network, cluster: OttlaCluster) -> None:
    """A leader that only clients can reach must not acknowledge records."""
    old = cluster.controller()
    others = [number for number in cluster.nodes if number != old]
    with Acknowledged(cluster.address, TOPIC, partitions=3) as producing:
        producing.wait_for(200)
        network.cut([old], others)
        eventually(lambda: old not in leaders_at(cluster, others[0]).values(), "the other nodes lead all partitions")
        producing.wait_for(200)
        network.heal()
        wait_until_in_sync(cluster)
        controller = cluster.controller()
        network.block(controller, sources=[number for number in cluster.nodes if number != controller])
        # It keeps requests for half a minute, and answers Metadata requests as if it still led.
        producing.wait_for(300, timeout_s=120)
        network.heal()
        wait_until_in_sync(cluster)
        network.cut([1], [2])  # the third node still reaches both
        producing.wait_for(300)
        network.heal()
        wait_until_in_sync(cluster)
    producing.check()


RECEIVE = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
    receiver.bind(("", 9999))
    receiver.settimeout(1.5)
    print("ready", flush=True)
    try:
        while True:
            print(receiver.recv(100).decode(), flush=True)
    except TimeoutError:
        pass
"""
SEND = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    for address in sys.argv[2:]:
        sender.sendto(sys.argv[1].encode(), (address, 9999))
"""


def open_links(network: Network) -> set[tuple[int, int]]:
    """Let every host send to every other one. Return the pairs (receiver, sender) that work."""
    receivers = {
        host: subprocess.Popen(
            [*network.within(host), sys.executable, "-c", RECEIVE], stdout=subprocess.PIPE, text=True
        )
        for host in (1, 2, 3)
    }
    for receiver in receivers.values():
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "ready\n"
    for host in receivers:
        others = [network.address(other) for other in receivers if other != host]
        subprocess.run([*network.within(host), sys.executable, "-c", SEND, str(host), *others], check=True)
    return {
        (host, int(sender))
        for host, receiver in receivers.items()
        for sender in receiver.communicate(timeout=30)[0].split()
    }


def test_links_are_cut_and_healed(network: Network) -> None:
    all_links = {(one, other) for one in (1, 2, 3) for other in (1, 2, 3) if one != other}
    assert open_links(network) == all_links
    network.block(1, sources=[2])
    assert open_links(network) == all_links - {(1, 2)}
    network.heal()
    network.cut([1], [2, 3])
    assert open_links(network) == {(2, 3), (3, 2)}
    network.heal()
    assert open_links(network) == all_links


def test_a_closed_network_leaves_nothing_behind() -> None:
    with Network([1]) as network:
        sleeping = subprocess.Popen([*network.within(1), "sleep", "600"])
        assert names_of_this_run()
    assert sleeping.wait(30) == -signal.SIGKILL
    assert not names_of_this_run()


def names_of_this_run() -> list[str]:
    listed = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if f"-{os.getpid()}-" in line]
