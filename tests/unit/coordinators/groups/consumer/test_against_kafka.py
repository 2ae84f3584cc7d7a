"""Assignments, topic hashes and regular expressions equal those of Kafka's classes."""

import base64
import json
import random
import string
import subprocess
from pathlib import Path
from typing import Any

from bench.harness.kafka_jars import java, kafka_libs
from immutables import Map

from ottla.coordinators.groups.consumer.assignor import AssignorMember, GroupSpec
from ottla.coordinators.groups.consumer.member import Target
from ottla.coordinators.groups.consumer.regexes import compile_regex
from ottla.coordinators.groups.consumer.targets import ASSIGNORS
from ottla.coordinators.groups.metadata_hash import topics_hash
from ottla.metadata.image.image import Image
from ottla.metadata.image.values import Broker, Partition, Topic
from ottla.protocol.errors import InvalidRegularExpression
from ottla.protocol.java.hash_order import grown_table_size, hash_order, string_hash
from tests.support.java_peer import JVM_OPTIONS

JUDGE = Path(__file__).parent / "kafka" / "GroupJudge.java"
WALKS = 60
STEPS = 12
NAMES = ["orders", "orders.eu", "orders-2", "Orders", "o", "päyments", "__consumer_offsets", "a" * 249, "x.y_z-1", ""]
REGEXES = [
    *("orders", "orders.*", "^orders$", "(?i)ORDERS", "[a-z]+", "orders|o", r"\w+", r"o\w*", ".", "(?s).*", "a{249}"),
    *("a(", "a)", "[a", "*a", "a**", "a{1001}", "(?<n>a", "(?P<n>a)", "\\", "[b-a]", "\\8", "(?i", "(?=a)", "(a", "+"),
    *(
        "a{2}{3}",
        "[[:alpha:]]+",
        "[[:wrong:]]",
        r"\pL+",
        r"\p{Greek}",
        r"\p{Wrong}",
        "a++",
        "(?P<n",
        "(?P<>a)",
        "x{2,1}",
    ),
    *(r"\Qa.b\E", r"\C", "a{,2}", "(?U)a", "(?x)a", r"\d\D\s\S\W", "$^", "", "()", "(|a)*", "é.*", "[^a-z]*"),
]


def ask_kafka(folder: Path, questions: list[dict[str, Any]]) -> list[Any]:
    asked, answered = folder / "questions.json", folder / "answers.json"
    asked.write_text(json.dumps(questions))
    jars = f"{kafka_libs()}/*"
    compile_it = [str(java().parent / "javac"), "-proc:none", "-cp", jars, "-d", str(folder), str(JUDGE)]
    run_it = [str(java()), *JVM_OPTIONS, "-cp", f"{folder}:{jars}", "GroupJudge", str(asked), str(answered)]
    for command in (compile_it, run_it):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
    answers: list[Any] = json.loads(answered.read_text())
    return answers


def show_id(topic_id: bytes) -> str:
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


class Walk:
    """A group with changing members and topics, whose target is recomputed after each step."""

    def __init__(self, seed: int) -> None:
        self.source = random.Random(seed)
        self.assignor = self.source.choice(["uniform", "uniform", "range"])
        self.is_uniform = self.source.random() < 0.4
        self.partitions: dict[bytes, int] = {}
        self.members: dict[str, tuple[str | None, frozenset[bytes]]] = {}
        self.targets: dict[str, Target] = {}
        for _ in range(self.source.randint(1, 6)):
            self.add_topic()

    def add_topic(self) -> None:
        most = self.source.choice([1, 4, 20, 60])
        self.partitions[self.source.randbytes(16)] = self.source.randint(1, most)

    def subscription(self) -> frozenset[bytes]:
        topics = list(self.partitions)
        if self.is_uniform:
            return next((topics for _, topics in self.members.values()), frozenset(topics))
        return frozenset(self.source.sample(topics, self.source.randint(0, len(topics))))

    def step(self) -> None:
        source = self.source
        for _ in range(source.randint(1, 4)):
            choice = source.random()
            if choice < 0.55 or not self.members:
                name = "".join(source.choices(string.ascii_letters + "é-", k=source.randint(1, 36)))
                self.members[name] = (source.choice([None, None, f"i-{name}"]), self.subscription())
            elif choice < 0.75:
                gone = source.choice(sorted(self.members))
                del self.members[gone]
                self.targets.pop(gone, None)
            elif choice < 0.85:
                grows = source.choice(sorted(self.partitions))
                self.partitions[grows] += source.randint(1, 5)
            elif not self.is_uniform:
                changes = source.choice(sorted(self.members))
                self.members[changes] = (self.members[changes][0], self.subscription())

    def question(self) -> dict[str, Any]:
        return {
            "ask": "assign",
            "assignor": self.assignor,
            "uniform": self.is_uniform,
            "partitions": {show_id(topic): count for topic, count in self.partitions.items()},
            "members": [
                {
                    "id": name,
                    "instance": instance,
                    "topics": [show_id(topic) for topic in sorted(topics)],
                    "target": {show_id(topic): list(numbers) for topic, numbers in self.targets.get(name, {}).items()},
                }
                for name, (instance, topics) in self.members.items()
            ],
        }

    def group(self) -> GroupSpec:
        names = hash_order(self.members, string_hash, grown_table_size(len(self.members)))
        readers = {
            name: AssignorMember(
                dict.fromkeys(sorted(self.members[name][1])), self.targets.get(name, {}), self.members[name][0]
            )
            for name in names
        }
        assigned = frozenset(
            (topic, number)
            for target in self.targets.values()
            for topic, numbers in target.items()
            for number in numbers
        )
        return GroupSpec(readers, self.partitions, self.is_uniform, assigned)

    def assign(self) -> dict[str, dict[str, list[int]]]:
        group = self.group()
        found = ASSIGNORS[self.assignor](group)
        self.targets = {name: found.get(name, {}) for name in group.members}
        return {
            name: {show_id(topic): list(numbers) for topic, numbers in target.items()} for name, target in found.items()
        }


def test_assignors_agree_with_kafkas(tmp_path: Path) -> None:
    questions, ours = [], []
    for seed in range(WALKS):
        walk = Walk(seed)
        for _ in range(STEPS):
            walk.step()
            questions.append(walk.question())
            ours.append(walk.assign())
    answers = ask_kafka(tmp_path, questions)
    for question, mine, theirs in zip(questions, ours, answers, strict=True):
        assert mine == theirs, question
    assert {question["assignor"] for question in questions} == {"uniform", "range"}


def test_the_hash_of_topics_equals_kafkas(tmp_path: Path) -> None:
    source = random.Random(7)
    questions, ours = [], []
    for _ in range(20):
        racks = {number: source.choice([None, "", "a", "rack-2", "é\U0001f600"]) for number in range(4)}
        topics = {
            f"t{number}{source.choice(['', '.x', '-é'])}": [
                tuple(source.sample(range(6), source.randint(1, 4))) for _ in range(source.randint(1, 40))
            ]
            for number in range(source.randint(1, 5))
        }
        image = _image(racks, topics, source)
        questions.append(
            {
                "ask": "hash",
                "racks": racks,
                "topics": [
                    {"name": topic.name, "id": show_id(topic.id), "replicas": [p.replicas for p in topic.partitions]}
                    for topic in image.topics.values()
                ],
            }
        )
        ours.append(str(topics_hash([*topics, "missing"], image)))
    assert [answer["hash"] for answer in ask_kafka(tmp_path, questions)] == ours
    assert topics_hash(["missing"], Image()) == 0


def _image(racks: dict[int, str | None], topics: dict[str, list[tuple[int, ...]]], source: random.Random) -> Image:
    made = [
        Topic(
            name,
            source.randbytes(16),
            tuple(Partition(r, r, (), (), r[0], 0, 0, (bytes(16),) * len(r), 0, (), ()) for r in replicas),
        )
        for name, replicas in topics.items()
    ]
    brokers = {
        number: Broker(number, 1, bytes(16), endpoints=Map(), features=Map(), rack=rack, fenced=False)
        for number, rack in racks.items()
    }
    return Image(topics=Map({topic.name: topic for topic in made}), brokers=Map(brokers))


def test_regular_expressions_match_as_in_kafka(tmp_path: Path) -> None:
    answers = ask_kafka(tmp_path, [{"ask": "regex", "regex": regex, "names": NAMES} for regex in REGEXES])
    differing = {}
    for regex, theirs in zip(REGEXES, answers, strict=True):
        try:
            mine: dict[str, Any] = {
                "matches": [name for name in NAMES if compile_regex(regex).fullmatch(name) is not None]
            }
        except InvalidRegularExpression as error:
            message = error.message or ""
            prefix = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: "
            assert message.startswith(prefix)
            mine = {"error": message.removeprefix(prefix).removesuffix(".")}
        if mine != theirs:
            differing[regex] = (mine, theirs)
    assert differing == {
        "a)": ({"error": "unexpected )"}, {"error": "regexp/syntax: internal error"}),
        # A single byte of a multi-byte character is harmless.
        r"\C": ({"matches": ["o"]}, {"error": "invalid escape sequence"}),
    }
