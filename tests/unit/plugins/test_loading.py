"""Plug-ins that settings name are found, or it is said what is wrong with them."""

import asyncio
from pathlib import Path

import pytest
from bench.harness.kafka_jars import class_path, java_classes

from ottla.node.directories import NodeFailed
from ottla.node.plugins import Plugins
from ottla.node.settings_loader import load_settings

RULES = "tests.unit.plugins.rules"
TOPICS, CONFIGS = "create.topic.policy.class.name", "alter.config.policy.class.name"
ASSIGNORS = "group.consumer.assignors"


def start(setting: str, name: str, **more: str) -> Plugins:
    plugins = Plugins(load_settings(None, {setting: name, "rules.greeting": "hello", **more}))

    async def run() -> None:
        try:
            await plugins.start()
        finally:
            await plugins.stop()

    asyncio.run(run())
    return plugins


def refusal(setting: str, name: str) -> str:
    with pytest.raises(NodeFailed) as failed:
        start(setting, name)
    return str(failed.value)


@pytest.mark.parametrize(
    ("setting", "name", "reason"),
    [
        (TOPICS, "nowhere.rules:Any", "No module named 'nowhere'; add its folder to PYTHONPATH"),
        (TOPICS, f"{RULES}:Any", "has no attribute 'Any'; the name must be module:Class"),
        (TOPICS, ":Any", "the name must be module:Class"),
        (TOPICS, f"{RULES}:FirstTakesAll", "it is not a class with a method validate"),
        (TOPICS, f"{RULES}:Broken", "creating it failed: ValueError('not today')"),
        (ASSIGNORS, f"{RULES}:TopicRules", "it is not a class with a method assign"),
        (ASSIGNORS, f"{RULES}:Nameless", "an assignor needs an attribute `name` that is a string"),
    ],
)
def test_an_invalid_python_plugin_is_explained(setting: str, name: str, reason: str) -> None:
    message = refusal(setting, name)
    assert message.startswith(f"{setting}={name}: ")
    assert reason in message


def test_an_invalid_java_plugin_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLASSPATH", str(java_classes()))
    message = refusal(TOPICS, "TopicRules")
    assert message.startswith(
        f"{TOPICS}=TopicRules: it needs org.apache.kafka.server.policy.CreateTopicPolicy, which is not on the class"
    )
    assert message.endswith("and of kafka-clients")
    monkeypatch.setenv("CLASSPATH", class_path())
    assert refusal(CONFIGS, "TopicRules").startswith(
        f"{CONFIGS}=TopicRules: the class does not implement org.apache.kafka.server.policy.AlterConfigPolicy"
    )


def test_an_unusable_java_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexit 7\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "java ended with status 7" in refusal(TOPICS, "TopicRules")
    java.unlink()
    assert f"JAVA_HOME={tmp_path} has no bin/java: install a JDK" in refusal(TOPICS, "TopicRules")


def test_two_assignors_with_one_name_are_refused() -> None:
    assert "more than one assignor is named uniform" in refusal(ASSIGNORS, f"{RULES}:Uniform,uniform")


def test_a_node_loads_only_the_plugins_of_its_roles() -> None:
    both = start(TOPICS, f"{RULES}:TopicRules", **{ASSIGNORS: f"range,{RULES}:FirstTakesAll"})
    assert both.policies is not None
    assert [each.name for each in both.assignors.values()] == ["first-takes-all"]
    broker = {
        "process.roles": "broker",
        "controller.quorum.voters": "7@localhost:9093",
        "listeners": "PLAINTEXT://localhost:9092",
        ASSIGNORS: f"{RULES}:FirstTakesAll",
    }
    of_broker = start(TOPICS, "nobody:Asks", **broker)
    assert of_broker.policies is None
    assert len(of_broker.assignors) == 1
    controller = {
        "process.roles": "controller",
        "controller.quorum.voters": "1@localhost:9093",
        "listeners": "CONTROLLER://localhost:9093",
        ASSIGNORS: "nobody:Asks",
    }
    of_controller = start(TOPICS, f"{RULES}:TopicRules", **controller)
    assert of_controller.policies is not None
    assert not of_controller.assignors
