"""Networks that are cut one way, both ways and in part: nothing acknowledged is lost, and work goes on where it can."""

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
    with Network([1, 2, 3]) as made:
        yield made


@pytest.fixture
def cluster(tmp_path: Path, network: Network) -> Iterator[OttlaCluster]:
    with OttlaCluster(tmp_path, settings=QUICK, network=network).running() as running:
        create(running)
        yield running


def test_a_network_is_cut_each_way_and_healed(network: Network, cluster: OttlaCluster) -> None:
    """A leader that clients still reach, but no other node, must not promise anything."""
    old = cluster.controller()
    others = [number for number in cluster.nodes if number != old]
    with Acknowledged(cluster.address, TOPIC, partitions=3) as producing:
        producing.wait_for(200)
        network.cut([old], others)
        eventually(lambda: old not in leaders_at(cluster, others[0]).values(), "the others lead all partitions")
        producing.wait_for(200)
        network.heal()
        wait_until_in_sync(cluster)
        deaf = cluster.controller()
        network.deafen(deaf, to=[number for number in cluster.nodes if number != deaf])
        # It holds what it was sent for half a minute, and tells whoever asks it then that it still leads.
        producing.wait_for(300, timeout_s=120)
        network.heal()
        wait_until_in_sync(cluster)
        network.cut([1], [2])  # both are heard by the third
        producing.wait_for(300)
        network.heal()
        wait_until_in_sync(cluster)
    producing.check()


HEAR = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ear:
    ear.bind(("", 9999))
    ear.settimeout(1.5)
    print("ready", flush=True)
    try:
        while True:
            print(ear.recv(100).decode(), flush=True)
    except TimeoutError:
        pass
"""
SPEAK = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mouth:
    for address in sys.argv[2:]:
        mouth.sendto(sys.argv[1].encode(), (address, 9999))
"""


def heard(network: Network) -> set[tuple[int, int]]:
    """Who hears whom: every host speaks to every other."""
    ears = {
        host: subprocess.Popen([*network.within(host), sys.executable, "-c", HEAR], stdout=subprocess.PIPE, text=True)
        for host in (1, 2, 3)
    }
    for ear in ears.values():
        assert ear.stdout is not None
        assert ear.stdout.readline() == "ready\n"
    for host in ears:
        others = [network.address(other) for other in ears if other != host]
        subprocess.run([*network.within(host), sys.executable, "-c", SPEAK, str(host), *others], check=True)
    return {(host, int(word)) for host, ear in ears.items() for word in ear.communicate(timeout=30)[0].split()}


def test_hosts_hear_whom_they_are_told_to(network: Network) -> None:
    everybody = {(one, other) for one in (1, 2, 3) for other in (1, 2, 3) if one != other}
    assert heard(network) == everybody
    network.deafen(1, to=[2])
    assert heard(network) == everybody - {(1, 2)}
    network.heal()
    network.cut([1], [2, 3])
    assert heard(network) == {(2, 3), (3, 2)}
    network.heal()
    assert heard(network) == everybody


def test_nothing_is_left_of_a_network() -> None:
    with Network([1]) as network:
        sleeping = subprocess.Popen([*network.within(1), "sleep", "600"])
        assert names_of_this_run()
    assert sleeping.wait(30) == -signal.SIGKILL
    assert not names_of_this_run()


def names_of_this_run() -> list[str]:
    listed = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if f"-{os.getpid()}-" in line]
