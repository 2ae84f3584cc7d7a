"""Random walks against Kafka's own controller: the same requests must give the same partitions and brokers.

Ottla differs on purpose in a few cases, which these walks avoid or stop at:
- replica placement (Kafka gets Ottla's as a manual assignment)
- a reassignment that replaces another
- removed replicas, which stay in the ELR in Kafka
- the order of changes by a heartbeat that both reports a failed directory and unfences its broker
- the ELR after a change of min.insync.replicas, where Kafka clears too much, and too little of its own index
"""

import json
import subprocess
from pathlib import Path
from typing import Any

from bench.harness.kafka_jars import java, kafka_libs

from ottla.metadata.image.image import Image
from ottla.protocol.messages.rpc import create_partitions as growing
from ottla.protocol.messages.rpc import create_topics as making
from ottla.protocol.messages.rpc.broker_heartbeat import BrokerHeartbeatResponse
from ottla.protocol.wire.codec import encode
from ottla.protocol.wire.declare import schema_of
from tests.support.java_peer import JVM_OPTIONS
from tests.unit.metadata.controller.cluster import CLUSTER_ID, SESSION_MS, Asked
from tests.unit.metadata.controller.test_random_walk import Walk

JUDGE = Path(__file__).parent / "kafka" / "WalkJudge.java"
WALKS = 24
STEPS = 110
FENCED, RELEASED, CAUGHT_UP = 1, 2, 4
"""The flags of a heartbeat response, which the judge returns as a sum."""


class FaithfulWalk(Walk):
    """A random walk without the cases in which Kafka differs."""

    def reassign(self) -> None:
        state = self.random.getstate()
        topic_partition = self.some_partition()
        self.random.setstate(state)
        if topic_partition is not None and not topic_partition.partition.is_reassigning:
            super().reassign()

    def configure(self) -> None:
        image = self.cluster.image
        if not image.placement.elr and all(each.partition.isr for each in image.partitions_without_leader()):
            super().configure()

    def add_partitions(self) -> None:
        """Add partitions only if all have the same replication factor: Kafka takes that of any partition."""
        state = self.random.getstate()
        topic_partition = self.some_partition()
        self.random.setstate(state)
        if topic_partition is not None and len({len(each.replicas) for each in topic_partition.topic.partitions}) == 1:
            super().add_partitions()

    def lose_directory(self) -> None:
        """Lose a directory only if the heartbeat changes nothing else."""
        self.beat()
        state = self.random.getstate()
        broker = self.cluster.image.brokers.get(self.some_broker())
        self.random.setstate(state)
        if broker is not None and not broker.fenced and not broker.in_controlled_shutdown:
            super().lose_directory()


def show(image: Image) -> dict[str, Any]:
    """Return partitions and brokers in the format of the judge."""
    partitions = {
        f"{topic.id.hex()}-{number}": {
            "replicas": [*each.replicas],
            "isr": [*each.isr],
            "removing": [*each.removing],
            "adding": [*each.adding],
            "elr": [*each.elr],
            "last_known_elr": [*each.last_known_elr],
            "leader": each.leader,
            "leader_epoch": each.leader_epoch,
            "partition_epoch": each.partition_epoch,
            "recovery": each.leader_recovery,
            "directories": [directory.hex() for directory in each.directories],
        }
        for topic in image.topics.values()
        for number, each in enumerate(topic.partitions)
    }
    brokers = {
        str(each.id): {
            "epoch": each.epoch,
            "fenced": each.fenced,
            "shutting_down": each.in_controlled_shutdown,
            "directories": len(each.log_dirs),
        }
        for each in image.brokers.values()
    }
    return {"partitions": partitions, "brokers": brokers}


def as_placed(asked: Asked, before: Image) -> Any:
    """Return the request with the replicas that Ottla placed; Kafka would place others."""
    after = asked.image
    [topic] = asked.request.topics
    if isinstance(asked.request, making.CreateTopicsRequest):
        chosen = [
            making.CreatableReplicaAssignment(partition_index=number, broker_ids=list(each.replicas))
            for number, each in enumerate(after.topics[topic.name].partitions)
        ]
        manual = making.CreatableTopic(
            name=topic.name, num_partitions=-1, replication_factor=-1, assignments=chosen, configs=topic.configs
        )
        return making.CreateTopicsRequest(topics=[manual])
    known = len(before.topics[topic.name].partitions)
    added = after.topics[topic.name].partitions[known:]
    assignments = [growing.CreatePartitionsAssignment(broker_ids=list(each.replicas)) for each in added]
    return growing.CreatePartitionsRequest(
        topics=[growing.CreatePartitionsTopic(name=topic.name, count=topic.count, assignments=assignments)]
    )


def step_of(asked: Asked, before: Image) -> dict[str, Any] | None:
    """Return the step for the judge, or None if it has nothing to decide."""
    step: dict[str, Any] = {
        "do": asked.what,
        "now_ms": asked.now_ms,
        "next_offset": asked.next_offset,
        "registered_at": asked.registered_at,
        "last_offset": asked.image.offset,
        "request": "",
        "version": 0,
    }
    request = asked.request
    if asked.what == "fence_stale_broker":
        fenced = [each.id for each in before.alive_brokers if not asked.image.is_alive(each.id)]
        return {**step, "do": "fence", "broker": fenced[0]} if fenced else None
    if asked.what in ("create_topics", "create_partitions"):
        if asked.image is before or asked.image.topics == before.topics:
            return None
        request = as_placed(asked, before)
        name = request.topics[0].name
        step["topic_id"] = asked.image.topics[name].id.hex()
    if request is not None:
        version = schema_of(type(request)).versions.last
        step["version"] = version
        step["request"] = encode(request, version).hex()
    return step


def item_of(asked: Asked) -> int | None:
    """Return the part of a response that the judge compares."""
    match asked.what, asked.reply:
        case _, None:
            return None
        case "alter_partition", reply:
            return int(reply.topics[0].partitions[0].error_code)
        case "alter_partition_reassignments", reply:
            return int(reply.responses[0].partitions[0].error_code)
        case _, BrokerHeartbeatResponse() as reply:
            return FENCED * reply.is_fenced + RELEASED * reply.should_shut_down + CAUGHT_UP * reply.is_caught_up
    return None


def play(seed: int) -> tuple[dict[str, Any], list[tuple[Asked, dict[str, Any]]]]:
    """Return a walk as the judge's question, and Ottla's results."""
    walk = FaithfulWalk(seed)
    start = walk.cluster
    features = start.image.features
    levels = {"metadata.version": features.metadata_version, **features.levels}
    for _ in range(STEPS):
        walk.step()
    steps = []
    expected = []
    before = start.started_from
    for asked in start.asked:
        step = step_of(asked, before)
        if step is not None:
            steps.append(step)
            expected.append((asked, show(asked.image)))
        before = asked.image
    question = {
        "features": levels,
        "cluster_config": dict(start.started_from.default_broker_config),
        "session_ms": SESSION_MS,
        "cluster_id": CLUSTER_ID,
        "steps": steps,
    }
    return question, expected


def ask_kafka(folder: Path, walks: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    asked, answered = folder / "walks.json", folder / "answers.json"
    asked.write_text(json.dumps(walks))
    jars = f"{kafka_libs()}/*"
    compile_it = [str(java().parent / "javac"), "-proc:none", "-cp", jars, "-d", str(folder), str(JUDGE)]
    main = "org.apache.kafka.controller.WalkJudge"
    run_it = [str(java()), *JVM_OPTIONS, "-cp", f"{folder}:{jars}", main, str(asked), str(answered)]
    for command in (compile_it, run_it):
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
    answers: list[list[dict[str, Any]]] = json.loads(answered.read_text())
    return answers


def keeps_removed_replicas_eligible(answer: dict[str, Any]) -> bool:
    return any(not {*each["elr"]} <= {*each["replicas"]} for each in answer["partitions"].values())


def test_kafkas_controller_decides_the_same(tmp_path: Path) -> None:
    played = [play(seed) for seed in range(WALKS)]
    answers = ask_kafka(tmp_path, [question for question, _ in played])
    compared = 0
    for seed, ((question, expected), answered) in enumerate(zip(played, answers, strict=True)):
        for number, ((asked, ours), theirs) in enumerate(zip(expected, answered, strict=True)):
            if keeps_removed_replicas_eligible(theirs):
                break
            where = f"walk {seed}, step {number}: {question['steps'][number]['do']} {asked.request}"
            assert "crash" not in theirs, f"{where}: {theirs['crash']}"
            assert theirs["error"] == asked.error, where
            if (theirs.get("item"), item_of(asked)) == (CAUGHT_UP, CAUGHT_UP + FENCED + RELEASED):
                break  # Kafka resets the applied offset when directories change, which delays another broker
            assert theirs.get("item") == item_of(asked), where
            assert theirs["brokers"] == ours["brokers"], where
            assert theirs["partitions"] == ours["partitions"], where
            compared += 1
    assert compared > WALKS * STEPS // 2
