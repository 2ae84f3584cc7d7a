"""Kafka's kafka-reassign-partitions moves partitions of an Ottla cluster with a throttle."""

import json
import subprocess
from pathlib import Path

from bench.harness.kafka_jars import class_path, java

from ottla.client.config_calls import ConfigResource, ResourceType
from tests.support.acknowledged import Acknowledged
from tests.support.kafka_broker import JVM_OPTIONS
from tests.support.ottla_cluster import OttlaCluster, eventually
from tests.unit.node.cluster.test_replication import APART, TOPIC, check_files, in_sync, wait_until_in_sync

TOOL = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
TIMEOUT_S = 60
BYTES_PER_S = 500_000


def reassign(cluster: OttlaCluster, plan: Path, *arguments: str) -> str:
    command = [str(java()), *JVM_OPTIONS, "-cp", class_path(), TOOL, "--bootstrap-server", cluster.address]
    finished = subprocess.run(
        [*command, "--reassignment-json-file", str(plan), *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def test_kafkas_tool_moves_partitions_within_its_throttle(tmp_path: Path) -> None:
    settings = {"replica.fetch.max.bytes": "100000"}
    with OttlaCluster(tmp_path, roles=APART, settings=settings).running() as cluster:
        cluster.ask(lambda admin: admin.create_topic(TOPIC, assignment=[[2, 3]]))
        wait_until_in_sync(cluster, replicas=2)
        with Acknowledged(cluster.address, TOPIC, partitions=1, value_bytes=10_000, pause_s=0.005) as producing:
            producing.wait_for(200)
        plan = tmp_path / "plan.json"
        moves = [{"topic": TOPIC, "partition": 0, "replicas": [3, 4]}]
        plan.write_text(json.dumps({"version": 1, "partitions": moves}))
        begun = reassign(cluster, plan, "--execute", "--throttle", str(BYTES_PER_S))
        assert "Successfully started partition reassignment for t-0" in begun
        assert f"was set to {BYTES_PER_S} B/s" in begun
        eventually(lambda: "is complete" in reassign(cluster, plan, "--verify"), "the tool reports completion")
        assert in_sync(cluster) == {0: {3, 4}}
        assert not throttles(cluster), "the tool did not remove the throttles"
        producing.check()
        cluster.stop(*cluster.alive)
    check_files(cluster, partitions=1)


def throttles(cluster: OttlaCluster) -> list[str]:
    settings = cluster.ask(lambda admin: admin.settings(ConfigResource(ResourceType.TOPIC, TOPIC)))
    return [setting.name for setting in settings if "throttled" in setting.name and setting.value]
