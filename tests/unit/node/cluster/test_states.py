"""The states of partitions and replicas, and deletions until brokers have carried them out."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from bench.harness.ports import free_port
from confluent_kafka import Producer

from tests.support.commands import run_command
from tests.support.exposition import Exposition
from tests.support.kafka_member import KafkaMember
from tests.support.ottla_cluster import OttlaCluster, eventually
from tests.unit.node.cluster.test_replication import wait_until_in_sync

KAFKA = 9
SETTINGS = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "9000",
    "replica.lag.time.max.ms": "1500",
    "log.segment.delete.delay.ms": "600000",
}


class Watched:
    """A cluster, and the metrics ports of its nodes."""

    def __init__(self, folder: Path, roles: Mapping[int, str], **more: Any) -> None:
        self.ports = {number: free_port() for number in roles if number != KAFKA}
        self.cluster = OttlaCluster(
            folder,
            roles=roles,
            settings=SETTINGS,
            node_settings={
                number: {"ottla.metrics.listener": f"127.0.0.1:{port}"} for number, port in self.ports.items()
            },
            **more,
        )

    def get(self, node: int, path: str) -> tuple[int, str]:
        try:
            with urlopen(f"http://127.0.0.1:{self.ports[node]}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def topic(self, node: int, name: str) -> dict[str, Any] | None:
        code, body = self.get(node, f"/topics?name={name}")
        assert code in (200, 404), body
        return json.loads(body) if code == 200 else None

    def replicas(self, node: int, name: str) -> dict[int, str]:
        """Return the states of the replicas of a topic's first partition."""
        topic = self.topic(node, name)
        if topic is None or not topic["partitions"]:
            return {}
        return {each["broker"]: each["state"] for each in topic["partitions"][0]["replicas"]}

    def deletions(self, node: int, name: str) -> dict[int, str]:
        """Return the replicas of partition 0 that brokers have yet to remove, for topics of this name."""
        topic = self.topic(node, name)
        deletions = [] if topic is None else topic["deletions"]
        return {each["broker"]: each["state"] for deletion in deletions for each in deletion["replicas"]}

    def counts(self, node: int, kind: str = "replicas") -> dict[str, float]:
        """Return the nonzero gauges by state. Metrics are gathered at most once a second."""
        time.sleep(1.05)
        code, text = self.get(node, "/metrics")
        assert code == 200
        metrics = Exposition(text)
        states = {
            "replicas": ("New", "Online", "Offline"),
            "partitions": ("New", "Online", "Offline"),
        }[kind]
        names = [f"{state}{kind.removesuffix('s').title()}" for state in states]
        if kind == "replicas":
            names += ["ReplicaDeletionStarted", "ReplicaDeletionSuccessful"]
        found = {name: metrics[f'ottla_controller_{kind}{{state="{name}"}}'] for name in names}
        return {name: value for name, value in found.items() if value}

    def folders(self, node: int, name: str) -> list[str]:
        """Return the suffixes of a topic's directories on a node's disk."""
        folders = [each.name for each in self.cluster.nodes[node].directory.iterdir() if each.is_dir()]
        return sorted(each.rpartition("-")[2] for each in folders if each.rpartition("-")[0].startswith(f"{name}-0"))

    def has_log(self, node: int, name: str) -> bool:
        return (self.cluster.nodes[node].directory / f"{name}-0").exists()

    def active(self) -> int:
        return next(
            node
            for node in self.cluster.alive
            if node in self.ports and self.cluster.nodes[node].is_controller and self._is_active(node)
        )

    def _is_active(self, node: int) -> bool:
        text = self.get(node, "/metrics")[1]
        return "\nkafka_controller_kafkacontroller_activecontrollercount 1\n" in text


def create(watched: Watched, name: str, *replicas: int) -> None:
    """Create a topic with one record, so that each replica has files."""
    watched.cluster.ask(lambda admin: admin.create_topic(name, assignment=[[*replicas]]))
    wait_until_in_sync(watched.cluster, name, len(replicas))
    producer = Producer({"bootstrap.servers": watched.cluster.nodes[replicas[0]].address, "acks": "all"})
    producer.produce(name, b"x", partition=0)
    assert producer.flush(30) == 0


def delete(watched: Watched, name: str) -> None:
    watched.cluster.ask(lambda admin: admin.delete_topic(name))


def described(watched: Watched, name: str, at: int) -> tuple[str, dict[str, str]]:
    """Return the states of a topic's first partition and its replicas, from the command line."""
    (topic,) = json.loads(run_command("topic", "describe", name, "--json", server=watched.cluster.nodes[at].address))
    partition = topic["partitions"][0]
    return partition["state"], partition["replica_states"]


def test_states_follow_brokers_that_stop_lag_and_return(tmp_path: Path) -> None:
    watched = Watched(tmp_path, {1: "controller", 2: "broker", 3: "broker", 4: "broker"}, tolerant=True)
    with watched.cluster.running() as cluster:
        create(watched, "t", 2, 3, 4)
        create(watched, "alone", 4)
        assert watched.counts(1) == {"OnlineReplica": 4}
        assert watched.counts(1, "partitions") == {"OnlinePartition": 2}
        everything = {2: "OnlineReplica", 3: "OnlineReplica", 4: "OnlineReplica"}
        for node in (1, 2):
            eventually(lambda node=node: watched.replicas(node, "t") == everything, f"node {node} shows the replicas")  # type: ignore[misc]
        assert watched.topic(2, "t")["deletions"] is None, "a broker does not know"  # type: ignore[index]

        cluster.pause(4)
        producer = Producer({"bootstrap.servers": cluster.nodes[2].address, "acks": 1})
        producer.produce("t", b"x", partition=0)
        assert producer.flush(20) == 0
        behind = {**everything, 4: "OfflineReplica"}
        eventually(lambda: watched.replicas(1, "t") == behind, "the follower has left the ISR")
        assert watched.replicas(1, "alone") == {4: "OnlineReplica"}, "its broker is in service"
        assert described(watched, "t", 2) == ("OnlinePartition", {str(node): state for node, state in behind.items()})
        cluster.resume(4)
        eventually(lambda: watched.replicas(1, "t") == everything, "the follower has caught up")

        cluster.kill(4)
        eventually(lambda: watched.replicas(1, "alone") == {4: "OfflineReplica"}, "the broker is fenced")
        assert watched.counts(1) == {"OnlineReplica": 2, "OfflineReplica": 2}
        assert watched.counts(1, "partitions") == {"OnlinePartition": 1, "OfflinePartition": 1}
        eventually(
            lambda: described(watched, "alone", 2) == ("OfflinePartition", {"4": "OfflineReplica"}),
            "the command line shows it",
        )
        cluster.start(4)
        wait_until_in_sync(cluster, "t", 3)
        eventually(lambda: watched.counts(1) == {"OnlineReplica": 4}, "all replicas are online again")

        cluster.pause(3)
        cluster.ask(lambda admin: admin.reassign({("alone", 0): [4, 3]}))
        new = {4: "OnlineReplica", 3: "NewReplica"}
        eventually(lambda: watched.replicas(1, "alone") == new, "a replica is being added")
        assert described(watched, "alone", 2) == ("OnlinePartition", {"4": "OnlineReplica", "3": "NewReplica"})
        assert watched.counts(1)["NewReplica"] == 1
        cluster.resume(3)
        eventually(lambda: watched.counts(1) == {"OnlineReplica": 5}, "the new replica has joined the ISR")
        cluster.ask(lambda admin: admin.reassign({("alone", 0): [3]}))
        eventually(lambda: watched.folders(4, "alone") == ["delete"], "broker 4 has removed its replica")
        eventually(lambda: watched.counts(1) == {"OnlineReplica": 4}, "the move is over")


def test_a_deletion_is_tracked_until_the_last_broker_returns(tmp_path: Path) -> None:
    roles = {**dict.fromkeys((1, 5, 6), "controller"), **dict.fromkeys((2, 3, 4), "broker")}
    watched = Watched(tmp_path, roles, tolerant=True)
    with watched.cluster.running() as cluster:
        create(watched, "t", 2, 3, 4)
        cluster.kill(4)
        active = watched.active()
        eventually(lambda: watched.replicas(active, "t").get(4) == "OfflineReplica", "the broker is fenced")
        delete(watched, "t")
        left = {
            2: "ReplicaDeletionSuccessful",
            3: "ReplicaDeletionSuccessful",
            4: "ReplicaDeletionStarted",
        }
        eventually(lambda: watched.deletions(active, "t") == left, "two of three brokers have removed their replicas")
        assert [watched.has_log(node, "t") for node in (2, 3, 4)] == [False, False, True]
        counts = {"ReplicaDeletionSuccessful": 2, "ReplicaDeletionStarted": 1}
        assert watched.counts(active) == counts

        cluster.kill(active)
        eventually(lambda: any(watched._is_active(node) for node in (1, 5, 6) if node != active), "another is active")
        successor = watched.active()
        eventually(lambda: watched.deletions(successor, "t") == left, "the next controller knows of the deletion")
        create(watched, "t", 2, 3)
        assert watched.deletions(successor, "t") == left, "a topic of the same name is another one"
        assert watched.counts(successor) == {"OnlineReplica": 2, **counts}

        cluster.start(4)
        eventually(lambda: watched.deletions(successor, "t") == {}, "the last broker has removed its replica")
        assert not watched.has_log(4, "t")
        assert watched.folders(4, "t") == ["stray"]
        assert watched.counts(successor) == {"OnlineReplica": 2}
        assert watched.get(successor, "/topics?name=none")[0] == 404
        assert watched.get(successor, "/topics")[0] == 400


def test_ottlas_controller_tracks_deletions_on_kafkas_broker(tmp_path: Path) -> None:
    roles = {1: "controller", 2: "broker", KAFKA: "broker"}
    watched = Watched(tmp_path, roles, node_classes={KAFKA: KafkaMember})
    with watched.cluster.running() as cluster:
        eventually(lambda: len(cluster.ask(lambda admin: admin.describe_cluster(fenced=False)).brokers) == 2, "service")
        for name in ("a", "b"):
            create(watched, name, 2, KAFKA)
        states = {"2": "OnlineReplica", str(KAFKA): "OnlineReplica"}
        assert described(watched, "a", KAFKA) == ("OnlinePartition", states)
        seen: set[str] = set()
        delete(watched, "a")

        def is_over() -> bool:
            seen.update(watched.deletions(1, "a").values())
            return watched.topic(1, "a") is None

        eventually(is_over, "both brokers have removed their replicas")
        assert "ReplicaDeletionStarted" in seen
        assert watched.folders(KAFKA, "a") == ["delete"]
        assert watched.folders(2, "a") == ["delete"]

        cluster.kill(KAFKA)
        eventually(lambda: watched.replicas(1, "b").get(KAFKA) == "OfflineReplica", "Kafka's broker is fenced")
        assert described(watched, "b", 2)[1] == {**states, str(KAFKA): "OfflineReplica"}
        delete(watched, "b")
        left = {2: "ReplicaDeletionSuccessful", KAFKA: "ReplicaDeletionStarted"}
        eventually(lambda: watched.deletions(1, "b") == left, "Ottla's broker has removed its replica")
        assert watched.has_log(KAFKA, "b")
        cluster.start(KAFKA)
        eventually(lambda: watched.topic(1, "b") is None, "Kafka's broker has removed its replica")
        assert not watched.has_log(KAFKA, "b")
        assert watched.folders(KAFKA, "b") == ["stray"]
        assert watched.counts(1) == {}
