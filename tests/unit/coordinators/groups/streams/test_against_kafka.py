"""Assignments and configured topologies equal those of Kafka's classes."""

import json
import random
import string
import subprocess
from pathlib import Path
from typing import Any

from bench.harness.kafka_jars import java, kafka_libs
from immutables import Map

from ottla.coordinators.groups.streams.configuring import configure
from ottla.coordinators.groups.streams.sticky_assignor import AssignorMember, AssignorSubtopology, assign_tasks
from ottla.coordinators.groups.streams.tasks import NO_TASKS, Tasks
from ottla.coordinators.groups.streams.topology import read_topology, topology_value
from ottla.metadata.image.image import Image
from ottla.metadata.image.values import Partition, Topic
from ottla.protocol.errors import ApiError, UnknownServerError
from ottla.protocol.java.hash_order import grown_table_size, hash_order, string_hash
from ottla.protocol.messages.rpc import streams_group_heartbeat as messages
from tests.support.java_peer import JVM_OPTIONS

JUDGE = Path(__file__).parent / "kafka" / "StreamsJudge.java"
WALKS = 80
STEPS = 10
TOPOLOGIES = 600


def ask_kafka(folder: Path, questions: list[dict[str, Any]]) -> list[Any]:
    asked, answered = folder / "questions.json", folder / "answers.json"
    asked.write_text(json.dumps(questions))
    jars = f"{kafka_libs()}/*"
    compile_it = [str(java().parent / "javac"), "-proc:none", "-cp", jars, "-d", str(folder), str(JUDGE)]
    run_it = [str(java()), *JVM_OPTIONS, "-cp", f"{folder}:{jars}", "StreamsJudge", str(asked), str(answered)]
    for command in (compile_it, run_it):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
    answers: list[Any] = json.loads(answered.read_text())
    return answers


class Walk:
    """A group with changing members and subtopologies, whose target is recomputed after each step."""

    def __init__(self, seed: int) -> None:
        self.source = random.Random(seed)
        self.standbys = self.source.choice([0, 0, 1, 2])
        self.processes: list[str] = []
        self.members: dict[str, str] = {}
        self.targets: dict[str, Tasks] = {}
        most = self.source.choice([3, 12, 40])
        self.subtopologies = {
            str(number): AssignorSubtopology(self.source.randint(1, most), self.source.random() < 0.6)
            for number in range(self.source.choice([1, 2, 4, 12]))
        }

    def name(self) -> str:
        return "".join(self.source.choices(string.ascii_letters + "é-", k=self.source.randint(1, 36)))

    def step(self) -> None:
        source = self.source
        for _ in range(source.randint(1, 4)):
            choice = source.random()
            if choice < 0.55 or not self.members:
                if not self.processes or source.random() < 0.5:
                    self.processes.append(self.name())
                self.members[self.name()] = source.choice(self.processes)
            elif choice < 0.8:
                gone = source.choice(sorted(self.members))
                del self.members[gone]
                self.targets.pop(gone, None)
            elif choice < 0.9:
                grows = source.choice(sorted(self.subtopologies))
                self.subtopologies[grows] = self.subtopologies[grows]._replace(tasks=source.randint(1, 30))
            else:
                self.standbys = source.choice([0, 1, 2])

    def question(self) -> dict[str, Any]:
        return {
            "ask": "assign",
            "standbys": self.standbys,
            "subtopologies": dict(self.subtopologies),
            "members": [
                {
                    "id": name,
                    "process": process,
                    "active": self.targets.get(name, NO_TASKS).active,
                    "standby": self.targets.get(name, NO_TASKS).standby,
                }
                for name, process in self.members.items()
            ],
        }

    def assign(self) -> dict[str, Any]:
        names = hash_order(self.members, string_hash, grown_table_size(len(self.members)))
        runners = {name: AssignorMember(self.members[name], self.targets.get(name, NO_TASKS)) for name in names}
        self.targets = assign_tasks(runners, self.subtopologies, self.standbys)
        return {
            name: {
                role: {each: list(numbers) for each, numbers in tasks.items()}
                for role, tasks in (("active", target.active), ("standby", target.standby))
            }
            for name, target in self.targets.items()
        }


def test_the_sticky_assignor_agrees_with_kafkas(tmp_path: Path) -> None:
    questions, ours = [], []
    for seed in range(WALKS):
        walk = Walk(seed)
        for _ in range(STEPS):
            walk.step()
            if walk.members:
                questions.append(walk.question())
                ours.append(walk.assign())
    answers = ask_kafka(tmp_path, questions)
    for question, mine, theirs in zip(questions, ours, answers, strict=True):
        assert mine == theirs, question


def some_topology(source: random.Random) -> dict[str, Any]:
    """Return a random topology and topics that match it more or less."""
    externals = [f"in-{number}" for number in range(5)]
    internals = [f"app-{name}-repartition" for name in ("a", "b", "c", "key-store", "x" * 20)]
    subtopologies: list[dict[str, Any]] = []
    changelog_names: list[str] = []
    for number in range(source.randint(1, 4)):
        sources = source.sample(externals, source.choice([0, 1, 1, 2]))
        repartitioned = [
            (name, source.choice([0, 0, 0, 2, 4]), source.choice([0, 1]))
            for name in source.sample(internals, source.choice([0, 0, 1, 2]))
        ]
        together = []
        if source.random() < 0.5:
            together.append(([*range(len(sources))], [*range(len(repartitioned))]))
        if source.random() < 0.03:
            together.append(([7], []))
        changelogs = [
            (f"app-store-{number}-{each}-changelog", 0, source.choice([0, 3])) for each in range(source.randint(0, 5))
        ]
        changelog_names += [topic[0] for topic in changelogs]
        subtopologies.append(
            {
                "id": str(number) if source.random() < 0.98 else "0",
                "sources": sources,
                "sinks": source.sample(internals, source.choice([0, 1, 1, 3])),
                "repartitioned": repartitioned,
                "changelogs": changelogs,
                "together": together,
            }
        )
    there = [name for name in externals if source.random() < 0.93]
    topics = {name: source.choice([1, 2, 4, 4, 4]) for name in there}
    names = [*internals, *changelog_names]
    topics.update((name, source.choice([1, 2, 4, 4])) for name in names if source.random() < 0.2)
    return {"ask": "configure", "subtopologies": subtopologies, "topics": topics}


def configured(question: dict[str, Any]) -> dict[str, Any]:
    """Return Ottla's result in the form of the judge's answer."""

    def infos(topics: list[tuple[str, int, int]]) -> list[messages.TopicInfo]:
        return [messages.TopicInfo(name=n, partitions=p, replication_factor=r) for n, p, r in topics]

    topology = messages.Topology(
        epoch=3,
        subtopologies=[
            messages.Subtopology(
                subtopology_id=each["id"],
                source_topics=each["sources"],
                repartition_sink_topics=each["sinks"],
                repartition_source_topics=infos(each["repartitioned"]),
                state_changelog_topics=infos(each["changelogs"]),
                copartition_groups=[
                    messages.CopartitionGroup(source_topics=sources, repartition_source_topics=repartitioned)
                    for sources, repartitioned in each["together"]
                ],
            )
            for each in question["subtopologies"]
        ],
    )
    try:
        found = configure(read_topology(topology_value(topology)), image_of(question["topics"]))
    except UnknownServerError:
        return {"error": -1}
    except ApiError as error:
        return {"error": error.code, "message": error.message}
    result: dict[str, Any] = {"ready": found.is_ready}
    if found.problem is not None:
        result.update(status=int(found.problem.status), detail=found.problem.detail)
    if found.subtopologies is not None:
        result["tasks"] = {name: each.tasks for name, each in found.subtopologies.items()}
    result["missing"] = {topic.name: [topic.num_partitions, topic.replication_factor] for topic in found.missing}
    return result


def image_of(topics: dict[str, int]) -> Image:
    one = (1,)
    partition = Partition(one, one, (), (), 1, 0, 0, (bytes(16),), 0, (), ())
    return Image(
        topics=Map({name: Topic(name, name.encode().ljust(16)[:16], (partition,) * n) for name, n in topics.items()})
    )


def test_topologies_agree_with_kafkas(tmp_path: Path) -> None:
    source = random.Random(11)
    questions = [some_topology(source) for _ in range(TOPOLOGIES)]
    seen = set()
    for question, theirs in zip(questions, ask_kafka(tmp_path, questions), strict=True):
        assert configured(question) == theirs, question
        seen.add(theirs.get("error", theirs.get("status", "ready")))
    assert seen == {"ready", 1, 2, 3, 130, -1}
