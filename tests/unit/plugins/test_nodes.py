"""Nodes with plug-ins of either language: processes as people run them, their JVMs too."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from bench.harness.kafka_jars import class_path

from ottla.metadata.image.values import ResourceType
from ottla.protocol.errors import PolicyViolation, UnknownServerError, UnsupportedAssignor
from ottla.protocol.messages.rpc.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.rpc.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from ottla.protocol.messages.rpc.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.rpc.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.conformance.differential.harness import ask_alone
from tests.support.kafka_broker import SETTINGS
from tests.support.ottla_node import NodeFailed, OttlaNode

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 30.0
RULES = "tests.unit.plugins.rules"
OF_PYTHON = {
    "create.topic.policy.class.name": f"{RULES}:TopicRules",
    "alter.config.policy.class.name": f"{RULES}:ConfigRules",
    "group.consumer.assignors": f"{RULES}:FirstTakesAll,range",
    "rules.greeting": "the rules say",
}
OF_JAVA = {
    "create.topic.policy.class.name": "TopicRules",
    "group.consumer.assignors": "uniform,FirstTakesAll",
    "rules.greeting": "the rules say",
}


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}/src:{ROOT}")


@pytest.fixture
def of_python(tmp_path: Path) -> Iterator[OttlaNode]:
    yield from running(tmp_path, OF_PYTHON)


@pytest.fixture
def of_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OttlaNode]:
    monkeypatch.setenv("CLASSPATH", class_path())
    yield from running(tmp_path, OF_JAVA)


def running(folder: Path, settings: Mapping[str, str]) -> Iterator[OttlaNode]:
    node = OttlaNode(folder, {**SETTINGS, **settings})
    node.format()
    with node.running():
        yield node


def create(node: OttlaNode, name: str, *, validate_only: bool = False) -> CreatableTopicResult:
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=validate_only)
    (result,) = ask_alone(node, request, 7).topics
    assert isinstance(result, CreatableTopicResult)
    return result


def join(node: OttlaNode, topic: str, assignor: str | None, **fields: Any) -> Any:
    """Join a group, once there is a coordinator, and return the answer."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=f"readers of {topic}",
        member_id="m",
        server_assignor=assignor,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
        **fields,
    )
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        answer = ask_alone(node, request, 1)
        if answer.error_code not in (14, 15, 16):  # the coordinator is not there yet
            return answer
        assert time.monotonic() < deadline, answer
        ask_alone(node, FindCoordinatorRequest(coordinator_keys=[request.group_id]), 6)
        time.sleep(0.05)


def children(pid: int | None) -> list[int]:
    """Return the child processes of a process."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it is gone
            continue
        if fields[0] != "Z" and int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, f"{pid} is still there"
        time.sleep(0.05)


def test_python_policies_refuse_with_a_reason(of_python: OttlaNode) -> None:
    assert create(of_python, "t").error_code == 0
    for validate_only in (True, False):
        refused = create(of_python, "refused", validate_only=validate_only)
        assert refused.error_code == PolicyViolation.code
        assert refused.error_message == (
            "the rules say: NewTopic(name='refused', partitions=2, replication_factor=1, assignments=None, configs={})"
        )
    assert create(of_python, "broken").error_code == UnknownServerError.code
    change = AlterableConfig(name="retention.ms", config_operation=1, value=None)
    resource = AlterConfigsResource(resource_type=ResourceType.TOPIC, resource_name="t", configs=[change])
    answer = ask_alone(of_python, IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0]
    assert answer.error_code == 0, "what is not set is not altered"
    change.config_operation, change.value = 0, "5000"
    assert ask_alone(of_python, IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0].error_code == 0
    change.config_operation, change.value = 1, None
    answer = ask_alone(of_python, IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0]
    assert (answer.error_code, answer.error_message) == (
        PolicyViolation.code,
        "AlteredConfigs(resource_type='TOPIC', resource_name='t', configs={'retention.ms': None}) takes something away",
    )
    of_python.stop()
    assert "TopicRules closed" in of_python.log_tail()


def test_a_python_assignor_assigns_and_refuses(of_python: OttlaNode) -> None:
    create(of_python, "t")
    answer = join(of_python, "t", None)
    assert [each.partitions for each in answer.assignment.topic_partitions] == [[0, 1]]
    answer = join(of_python, "t", "nearest")
    assert answer.error_code == UnsupportedAssignor.code
    assert answer.error_message.startswith("ServerAssignor nearest is not supported. Supported assignors: ")
    create(of_python, "u")
    for instance, reason in (
        ("objects", "a member objects"),
        ("confuses", "it assigns partitions of nowhere to m that do not exist"),
    ):
        answer = join(of_python, "u", "first-takes-all", instance_id=instance)
        assert answer.error_code == UnknownServerError.code
        assert reason in answer.error_message


def test_java_policies_apply_even_after_their_jvm_was_killed(of_java: OttlaNode) -> None:
    assert create(of_java, "t").error_code == 0
    assert create(of_java, "refused").error_message == "the rules say: refused 2 1 null {}"
    answer = join(of_java, "t", "first-takes-all")
    assert [each.partitions for each in answer.assignment.topic_partitions] == [[0, 1]]
    (jvm,) = children(of_java.pid)
    os.kill(jvm, signal.SIGKILL)
    wait_until_gone(jvm)
    answers = [create(of_java, "other")]
    assert answers[0].error_code == PolicyViolation.code
    assert str(answers[0].error_message).startswith("The policy TopicRules could not decide: its JVM")
    deadline = time.monotonic() + TIMEOUT_S
    while answers[-1].error_code == PolicyViolation.code:
        assert time.monotonic() < deadline, of_java.log_tail()
        time.sleep(0.1)
        answers.append(create(of_java, "other"))
    assert answers[-1].error_code == 0
    assert create(of_java, "refused").error_code == PolicyViolation.code
    assert "the plug-in JVM ended with status -9" in of_java.log_tail()
    assert "the plug-in JVM is running again" in of_java.log_tail()
    (jvm,) = children(of_java.pid)
    of_java.stop()
    assert "TopicRules closed" in of_java.log_tail()
    wait_until_gone(jvm)


def test_the_jvm_ends_when_the_node_is_killed(of_java: OttlaNode) -> None:
    (jvm,) = children(of_java.pid)
    of_java.stop(signal.SIGKILL)
    wait_until_gone(jvm)


def test_a_missing_class_or_java_fails_the_start_with_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = OttlaNode(tmp_path, {**SETTINGS, "create.topic.policy.class.name": "com.example.Nowhere"})
    node.format()
    monkeypatch.setenv("CLASSPATH", class_path())
    assert refusal(node).endswith(
        "create.topic.policy.class.name=com.example.Nowhere: the class is not on the class path: the environment"
        " variable CLASSPATH must name the jars of the class, of what it needs, and of kafka-clients"
    )
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refusal(node).endswith(
        "create.topic.policy.class.name=com.example.Nowhere: Java plug-ins cannot run: there is no java in PATH:"
        " install a JDK of version 17 or newer"
    )


def refusal(node: OttlaNode) -> str:
    """Return the single line that a node prints when it fails to start."""
    before = len(node.log_path.read_text()) if node.log_path.exists() else 0
    with pytest.raises(NodeFailed, match="Ottla exited with 1"):
        node.start()
    (line,) = node.log_path.read_text()[before:].splitlines()
    return line


def test_a_node_without_plugins_does_not_import_their_modules() -> None:
    loaded = "import ottla.node.node, sys; print([each for each in sys.modules if each.startswith('ottla.plugins')])"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
