"""Several processes form one cluster: elections, forwarding, fencing and failover."""

import subprocess
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from bench.harness.kafka_jars import class_path, java
from bench.harness.ports import free_port
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from ottla.client.admin import Admin
from ottla.client.cluster_calls import Broker
from ottla.client.config_calls import ConfigOperation, ConfigResource, ResourceType
from ottla.client.topic_calls import CreatedTopic
from ottla.protocol.errors import TopicAlreadyExists
from ottla.protocol.messages.rpc.unregister_broker import UnregisterBrokerRequest
from tests.support.ottla_cluster import OttlaCluster, eventually
from tests.support.ottla_node import OTTLA


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[OttlaCluster]:
    with OttlaCluster(tmp_path, nodes=3).running() as running:
        yield running


def brokers(cluster: OttlaCluster) -> dict[int, Broker]:
    return {each.id: each for each in cluster.ask(lambda admin: admin.describe_cluster()).brokers}


def in_service(cluster: OttlaCluster) -> set[int]:
    return {each.id for each in brokers(cluster).values() if not each.is_fenced}


def await_in_service(cluster: OttlaCluster, expected: set[int]) -> None:
    """Wait until exactly these brokers are unfenced. The asked broker may apply a change a little later than others."""
    eventually(lambda: in_service(cluster) == expected, f"brokers {expected} are in service")


def is_fenced(cluster: OttlaCluster, node: int) -> bool:
    return node not in in_service(cluster)


def has_topics(cluster: OttlaCluster, node: int, *names: str) -> bool:
    return {*names} <= {each.name for each in cluster.ask(lambda admin: admin.topics(), node=node)}


def creation(name: str, *, partitions: int = 1, replicas: int = 1) -> Callable[[Admin], Awaitable[CreatedTopic]]:
    return lambda admin: admin.create_topic(name, partitions=partitions, replicas=replicas)


def test_any_node_of_three_answers_for_the_cluster(cluster: OttlaCluster) -> None:
    quorum = cluster.ask(lambda admin: admin.quorum())
    assert {member.id for member in quorum.members if member.is_voter} == {1, 2, 3}
    await_in_service(cluster, {1, 2, 3})
    for node in cluster.nodes:
        made = cluster.ask(creation(f"t{node}", partitions=3, replicas=3), node=node)
        assert (made.partitions, made.replicas) == (3, 3)
    for node in cluster.nodes:
        eventually(partial(has_topics, cluster, node, "t1", "t2", "t3"), f"node {node} has all topics")
        with pytest.raises(TopicAlreadyExists):
            cluster.ask(creation("t1"), node=node)


def test_requests_are_forwarded_to_the_active_controller(cluster: OttlaCluster) -> None:
    """librdkafka sends them, in its own versions, to a broker that is not the active controller."""
    elsewhere = next(node for node in cluster.nodes if node != cluster.controller())
    admin = AdminClient({"bootstrap.servers": cluster.nodes[elsewhere].address})
    admin.create_topics([NewTopic("t", 1, 3, config={"retention.ms": "1000"})])["t"].result(30)
    admin.create_partitions([NewPartitions("t", 4)])["t"].result(30)
    topic = ConfigResource(ResourceType.TOPIC, "t")
    cluster.ask(
        lambda admin: admin.change_settings(topic, [("retention.ms", ConfigOperation.SET, "2000")]), node=elsewhere
    )
    (retention,) = cluster.ask(lambda admin: admin.settings(topic, names=["retention.ms"]), node=elsewhere)
    assert retention.value in ("1000", "2000"), "a broker may hear of a change a little later"
    eventually(lambda: len(admin.list_topics("t", timeout=10).topics["t"].partitions) == 4, "it has four partitions")
    admin.delete_topics(["t"])["t"].result(30)
    eventually(lambda: "t" not in admin.list_topics(timeout=10).topics, "it is gone")


def test_another_controller_takes_over_when_the_active_one_dies(cluster: OttlaCluster) -> None:
    for round_number in range(2):
        old = cluster.controller()
        cluster.kill(old)
        assert cluster.ask(creation(f"after{round_number}", replicas=2)).replicas == 2
        assert cluster.controller() != old
        eventually(partial(is_fenced, cluster, old), f"broker {old} is fenced")
        cluster.start(old)
        await_in_service(cluster, {1, 2, 3})


def test_a_dead_broker_is_fenced_before_its_session_expires(tmp_path: Path) -> None:
    """The session lasts ten minutes, so only the closed connection can be the reason."""
    settings = {"broker.session.timeout.ms": "600000"}
    roles = {1: "controller", 2: "broker", 3: "broker"}
    with OttlaCluster(tmp_path, roles=roles, settings=settings).running() as cluster:
        cluster.kill(3)
        await_in_service(cluster, {2})
        cluster.start(3)
        await_in_service(cluster, {2, 3})


def test_the_next_controller_fences_the_broker_of_a_dead_node(tmp_path: Path) -> None:
    settings = {"broker.session.timeout.ms": "600000"}
    with OttlaCluster(tmp_path, nodes=3, settings=settings).running() as cluster:
        old = cluster.controller()
        cluster.kill(old)
        await_in_service(cluster, {1, 2, 3} - {old})


def test_a_suspended_broker_keeps_its_session(tmp_path: Path) -> None:
    """A suspended process keeps its connections, so only the session's expiry can fence it."""
    settings = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "300"}
    with OttlaCluster(
        tmp_path, roles={1: "controller", 2: "broker", 3: "broker"}, settings=settings
    ).running() as cluster:
        cluster.pause(3)
        await_in_service(cluster, {2})
        cluster.resume(3)
        await_in_service(cluster, {2, 3})


def test_a_suspended_controller_is_replaced(cluster: OttlaCluster) -> None:
    old = cluster.controller()
    others = [node for node in cluster.nodes if node != old]
    cluster.pause(old)
    eventually(
        lambda: cluster.ask(lambda admin: admin.quorum(), node=others[0], timeout_s=60).leader_id != old,
        "another controller is active",
    )
    cluster.ask(creation("meanwhile", replicas=2), node=others[1], timeout_s=60)
    cluster.resume(old)
    eventually(partial(has_topics, cluster, old, "meanwhile"), "the old one has read what it missed")
    await_in_service(cluster, {1, 2, 3})


def test_separate_brokers_and_controllers_and_a_late_broker(tmp_path: Path) -> None:
    roles = {1: "controller", 2: "controller", 3: "controller", 4: "broker", 5: "broker"}
    with OttlaCluster(tmp_path, roles=roles).running() as cluster:
        await_in_service(cluster, {4, 5})
        quorum = cluster.ask(lambda admin: admin.quorum())
        assert {each.id for each in quorum.members if not each.is_voter} == {4, 5}
        cluster.add(6, "broker")
        cluster.start(6)
        await_in_service(cluster, {4, 5, 6})
        cluster.kill(quorum.leader_id)
        made = cluster.ask(creation("t", partitions=6, replicas=3), node=6)
        assert made.replicas == 3


def test_a_quorum_with_its_voters_in_the_log(tmp_path: Path) -> None:
    """With controller.quorum.bootstrap.servers; another controller joins later by itself."""
    cluster = OttlaCluster(tmp_path, roles={1: "controller", 2: "broker"})
    first = cluster.nodes[1]
    cluster.reconfigure(
        {"controller.quorum.voters": None, "controller.quorum.bootstrap.servers": first.controller_address}
    )
    first.format("--standalone")
    cluster.nodes[2].format()
    with cluster.running():
        cluster.ask(creation("t"), node=2)
        joins = {"controller.quorum.auto.join.enable": "true"}
        cluster.start(cluster.add(3, "controller", "--no-initial-controllers", **joins).id)

        def voters() -> set[int]:
            return {each.id for each in cluster.ask(lambda admin: admin.quorum()).members if each.is_voter}

        eventually(lambda: voters() == {1, 3}, "the new controller votes")
        assert "CurrentVoters" in kafka_quorum("--bootstrap-server", cluster.address, "describe", "--status")


def test_a_broker_that_is_unregistered_while_it_runs_registers_again(tmp_path: Path) -> None:
    settings = {"broker.heartbeat.interval.ms": "200"}
    roles = {1: "controller", 2: "broker", 3: "broker"}
    with OttlaCluster(tmp_path, roles=roles, settings=settings).running() as cluster:
        before = cluster.nodes[3].log_tail().count("is registered with epoch")
        cluster.ask(lambda admin: admin.cluster.send(UnregisterBrokerRequest(broker_id=3)), node=2)
        eventually(lambda: cluster.nodes[3].log_tail().count("is registered with epoch") > before, "it has a new epoch")
        await_in_service(cluster, {2, 3})


def test_rolling_restart_of_all_nodes(cluster: OttlaCluster) -> None:
    cluster.ask(creation("t", partitions=6, replicas=3))
    for node in cluster.nodes:
        cluster.restart(node)
        await_in_service(cluster, {1, 2, 3})
        cluster.ask(creation(f"after{node}", replicas=3))
    eventually(partial(has_topics, cluster, 3, "after1", "after2", "after3"), "all topics are there")


def test_kafkas_own_tool_describes_the_quorum(cluster: OttlaCluster) -> None:
    leader = cluster.controller()
    for server in (cluster.nodes[1].address, cluster.nodes[2].address, cluster.nodes[3].address):
        said = kafka_quorum("--bootstrap-server", server, "describe", "--status")
        assert f"LeaderId: {leader}" in " ".join(said.split())
    said = kafka_quorum("--bootstrap-controller", cluster.nodes[leader].controller_address, "describe", "--replication")
    assert said.count("Follower") == 2


def kafka_quorum(*arguments: str) -> str:
    tool = "org.apache.kafka.tools.MetadataQuorumCommand"
    command = [str(java()), "-Xmx128m", "-cp", class_path(), tool, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_broker_that_does_not_support_the_clusters_version_exits(tmp_path: Path) -> None:
    """A cluster on an unstable level refuses a broker that supports only stable levels."""
    cluster = OttlaCluster(tmp_path, nodes=1, settings={"unstable.feature.versions.enable": "true"})
    cluster.nodes[1].format()
    cluster.reconfigure({"unstable.feature.versions.enable": "false"})
    done = subprocess.run(
        [*OTTLA, "serve", str(cluster.nodes[1].properties)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "the controller refused to register this broker" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_node_without_a_quorum_is_not_ready_and_can_be_stopped(tmp_path: Path) -> None:
    cluster = OttlaCluster(tmp_path, nodes=3, settings={"broker.session.timeout.ms": "1000"})
    port = free_port()
    for node in cluster.nodes.values():
        node.format()
    alone = cluster.nodes[1]
    cluster.reconfigure({"ottla.metrics.listener": f"127.0.0.1:{port}"}, 1)
    alone.launch()
    try:
        eventually(lambda: health(port) not in ("", "ok"), "it says that it is not ready")
        assert health(port) == "no controller is known"
        cluster.stop(1)
    finally:
        if alone.process is not None:
            alone.process.kill()
            alone.process.wait()


def test_a_broker_with_unanswered_heartbeats_is_not_ready(tmp_path: Path) -> None:
    port = free_port()
    settings = {"broker.session.timeout.ms": "1500", "broker.heartbeat.interval.ms": "200"}
    cluster = OttlaCluster(tmp_path, roles={1: "controller", 2: "broker"}, settings=settings)
    cluster.reconfigure({"ottla.metrics.listener": f"127.0.0.1:{port}"}, 2)
    with cluster.running():
        assert health(port) == "ok"
        cluster.pause(1)
        eventually(lambda: health(port) not in ("", "ok"), "it is not ready")
        cluster.resume(1)
        eventually(lambda: health(port) == "ok", "it is ready again")


def health(port: int) -> str:
    """Return the node's health; empty while it does not answer."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
            said: bytes = answer.read()
    except HTTPError as error:
        said = error.read()
    except OSError:
        return ""
    return said.decode().strip()
