"""The JVM of plug-ins: its encoding, and its recovery from plug-ins that fail, hang or die."""

import asyncio
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from bench.harness.kafka_jars import class_path
from hypothesis import given, settings
from hypothesis import strategies as st
from immutables import Map

from ottla.coordinators.groups.consumer.assignor import AssignmentFailed, AssignorMember, GroupSpec
from ottla.coordinators.groups.consumer.targets import ASSIGNORS
from ottla.metadata.controller.view import NewTopic
from ottla.metadata.image.image import Image
from ottla.metadata.image.values import Broker, Partition, Topic
from ottla.plugins import assignors, jvm, policies
from ottla.plugins.assignors import JavaAssignor
from ottla.plugins.jvm import JavaClass, Jvm
from ottla.plugins.policies import JavaPolicy, Verdict
from ottla.plugins.values import decode, encode, numbers
from ottla.protocol.errors import CoordinatorLoading, PolicyViolation, UnknownServerError
from tests.unit.coordinators.groups.consumer.test_against_kafka import Walk

KAFKAS = "org.apache.kafka.coordinator.group.assignor."
CLASSES = [
    JavaClass("create-topic", "TopicRules"),
    JavaClass("assignor", "FirstTakesAll"),
    JavaClass("assignor", f"{KAFKAS}UniformAssignor"),
    JavaClass("assignor", f"{KAFKAS}RangeAssignor"),
]
TOPIC_ID = b"the topic's id.."

values = st.recursive(
    st.none()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text()
    | st.binary()
    | st.lists(st.integers(-(2**31), 2**31 - 1)).map(numbers),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.binary() | st.integers(0, 9), inner),
)


@settings(max_examples=50, deadline=None)
@given(values)
def test_values_survive_a_round_trip(value: object) -> None:
    assert decode(encode(value)) == value


def test_unsupported_values_are_refused() -> None:
    with pytest.raises(TypeError, match="a float cannot be encoded"):
        encode([1.5])
    with pytest.raises(ValueError, match="1 bytes follow the value"):
        decode(encode(None) + b"?")
    assert decode(encode(array("i", [3]))) == array("i", [3])


@pytest.fixture(scope="module")
def one_for_all() -> Iterator[Jvm]:
    made = Jvm(CLASSES, {"rules.greeting": "the rules say", "node.id": "1"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLASSPATH", class_path())
        patch.setattr(jvm, "_RESTART_INTERVAL_S", 1.0)
        try:
            assert made.start() == ["", "first-takes-all", "uniform", "range"]
            yield made
        finally:
            made.stop()


@pytest.fixture
def machine(one_for_all: Jvm) -> Jvm:
    """Return the JVM, once it is running again if the previous test killed it."""
    wait_until(lambda: one_for_all.pid is not None)
    return one_for_all


def judge(policy: JavaPolicy, *names: str) -> list[Verdict]:
    questions: Sequence[Any] = [NewTopic(name, 3, 1, None, {}) for name in names]
    return asyncio.run(policy.judge(questions))


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def image_of(partitions: dict[bytes, int]) -> Image:
    """Topics of these sizes on two brokers, one of which has a rack."""
    empty = {"isr": (1,), "removing": (), "adding": (), "leader": 1, "leader_epoch": 0, "partition_epoch": 0}
    rest: dict[str, Any] = {**empty, "directories": (), "leader_recovery": 0, "elr": (), "last_known_elr": ()}
    topics = [
        Topic(topic_id.hex(), topic_id, tuple(Partition(replicas=(number % 2 + 1,), **rest) for number in range(count)))
        for topic_id, count in partitions.items()
    ]
    brokers = {
        number: Broker(number, 1, bytes(16), Map(), Map(), rack, fenced=False) for number, rack in ((1, "a"), (2, None))
    }
    return Image(
        brokers=Map(brokers),
        topics=Map({topic.name: topic for topic in topics}),
        topics_by_id=Map({topic.id: topic for topic in topics}),
    )


def test_kafkas_own_assignors_agree_with_ottlas(machine: Jvm) -> None:
    of_java = {name: JavaAssignor(name, machine, index) for index, name in ((2, "uniform"), (3, "range"))}
    for seed in range(25):
        walk = Walk(seed)
        for _ in range(6):
            walk.step()
            group = walk.group()
            ours = ASSIGNORS[walk.assignor](group)
            theirs = of_java[walk.assignor].assign(group, image_of(walk.partitions))
            assert {name: target for name, target in ours.items() if target} == {
                name: target for name, target in theirs.items() if target
            }
            walk.targets = {name: ours.get(name, {}) for name in group.members}


def group_of(instance: str | None) -> GroupSpec:
    reader = AssignorMember({TOPIC_ID: None}, {TOPIC_ID: (1,)}, instance, "a")
    return GroupSpec({"m": reader}, {TOPIC_ID: 2}, is_uniform=True, assigned=frozenset({(TOPIC_ID, 1)}))


def test_a_failing_hanging_or_dead_jvm_refuses_and_recovers(machine: Jvm, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, assignor = JavaPolicy("TopicRules", machine, 0), JavaAssignor("first-takes-all", machine, 1)
    image = image_of({TOPIC_ID: 2})
    assert assignor.assign(group_of(None), image) == {"m": {TOPIC_ID: (0, 1)}}
    with pytest.raises(AssignmentFailed, match="m objects, and has 1 topics, Homogeneous"):
        assignor.assign(group_of("objects"), image)
    with pytest.raises(UnknownServerError):
        assignor.assign(group_of("breaks"), image)
    fine, broken, refused = judge(policy, "fine", "broken", "refused")
    assert fine is None
    assert isinstance(broken, UnknownServerError)
    assert isinstance(refused, PolicyViolation)
    assert refused.message == "the rules say: refused 3 1 null {}"

    first = machine.pid
    died = judge(policy, "fine", "deadly")  # nothing is known of the first either
    assert [type(each) for each in died] == [PolicyViolation] * 2
    wait_until(lambda: machine.pid not in (first, None))
    assert judge(policy, "fine") == [None]

    monkeypatch.setattr(policies, "TIMEOUT_S", 0.3)
    second = machine.pid
    (hung,) = judge(policy, "slow")
    assert isinstance(hung, PolicyViolation)
    assert "did not answer within" in hung.message
    monkeypatch.setattr(policies, "TIMEOUT_S", 20.0)
    wait_until(lambda: machine.pid != second)
    with pytest.raises(CoordinatorLoading, match="its JVM"):
        assignor.assign(group_of(None), image)
    wait_until(lambda: machine.pid is not None)
    assert judge(policy, "fine") == [None]


def test_a_slow_assignors_jvm_is_restarted(machine: Jvm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignors, "TIMEOUT_S", 0.0)
    before = machine.pid
    with pytest.raises(CoordinatorLoading, match="did not answer in time"):
        JavaAssignor("first-takes-all", machine, 1).assign(group_of(None), image_of({TOPIC_ID: 2}))
    wait_until(lambda: machine.pid != before)
