"""`ottla topic`, as people and programs see it."""

import json

import pytest
from bench.harness.ports import free_port

from tests.support.commands import run_command, run_failing_command, run_ottla


def test_a_topic_is_created_described_changed_and_deleted(server: str, topic: str) -> None:
    made = run_command("topic", "create", topic, "-p", "2", "--set", "retention.ms=1000", server=server)
    assert made == f"Created topic {topic}: 2 partitions, 1 replica each.\n"
    listed = run_command("topic", "list", server=server).splitlines()
    assert listed[0].split() == ["TOPIC", "PARTITIONS", "REPLICAS"]
    assert [topic, "2", "1"] in [line.split() for line in listed]
    first, setting, *table = run_command("topic", "describe", topic, server=server).splitlines()
    assert first.startswith(f"{topic}: 2 partitions, id ")
    assert setting == "  retention.ms=1000"
    assert table == [
        "PARTITION  STATE   LEADER  EPOCH  REPLICAS  IN SYNC  EARLIEST  LATEST",
        "        0  Online       1      0  1:Online        1         0       0",
        "        1  Online       1      0  1:Online        1         0       0",
    ]
    more = run_command("topic", "add-partitions", topic, "--by", "2", server=server)
    assert more.splitlines()[0] == f"Topic {topic} now has 4 partitions; it had 2."
    assert run_command("topic", "delete", topic, server=server) == f"Deleted topic {topic}.\n"


def test_json_for_programs(server: str, topic: str) -> None:
    (made,) = json.loads(run_command("topic", "create", topic, "--json", server=server))
    assert (made["name"], made["partitions"], made["replicas"], len(made["id"])) == (topic, 1, 1, 22)
    listed = json.loads(run_command("topic", "list", "--json", server=server))
    assert {**made, "internal": False} in listed
    (described,) = json.loads(run_command("topic", "describe", topic, "--json", server=server))
    assert described["partitions"] == [
        {
            "partition": 0,
            "leader": 1,
            "leader_epoch": 0,
            "replicas": [1],
            "in_sync": [1],
            "offline": [],
            "state": "OnlinePartition",
            "replica_states": {"1": "OnlineReplica"},
            "earliest": 0,
            "latest": 0,
        }
    ]
    more = json.loads(run_command("topic", "add-partitions", topic, "--to", "3", "--json", server=server))
    assert more == {"name": topic, "partitions": 3, "before": 1}
    assert json.loads(run_command("topic", "delete", topic, "--json", server=server)) == [topic]


def test_an_error_is_one_sentence(server: str, topic: str) -> None:
    run_command("topic", "create", topic, server=server)
    again = run_failing_command("topic", "create", topic, server=server)
    assert again == f"ottla topic: Topic '{topic}' already exists; use --if-not-exists to ignore this"
    assert run_command("topic", "create", topic, "--if-not-exists", server=server) == f"Topic {topic} already exists.\n"
    fewer = run_failing_command("topic", "add-partitions", topic, "--to", "1", server=server)
    assert fewer == f"ottla topic: topic '{topic}' already has 1 partition, and the partition count cannot be reduced"
    none = f"ottla topic: topic '{topic}x': there is no such topic; `ottla topic list` lists the topics"
    assert run_failing_command("topic", "describe", topic + "x", server=server) == none
    assert run_failing_command("topic", "delete", topic + "x", server=server) == none
    assert run_command("topic", "delete", topic + "x", "--if-exists", server=server) == ""
    assert "(INVALID_REPLICATION_FACTOR)" in run_failing_command(
        "topic", "create", topic + "x", "-r", "2", server=server
    )


def test_a_dry_run_changes_nothing(server: str, topic: str) -> None:
    assert run_command("topic", "create", topic, "--dry-run", server=server).startswith(f"Would create topic {topic}: ")
    assert topic not in run_command("topic", "list", server=server)


def test_an_unreachable_broker_is_reported_at_once_with_advice() -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    done = run_ottla("topic", "list", "-b", nowhere)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"ottla topic: {nowhere} cannot be reached: connection refused; is a broker running there? "
        f"(use -b HOST:PORT; the current value is {nowhere})\n"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic"],
        ["topic", "create"],
        ["topic", "create", "x", "-p", "0"],
        ["topic", "add-partitions", "x"],
        ["topic", "list", "-b", "a:b"],
        ["topic", "nonsense"],
        ["nonsense"],
    ],
)
def test_invalid_usage_is_exit_code_2(arguments: list[str]) -> None:
    done = run_ottla(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["topic", "create"], "ottla topic create orders --partitions 6"),
        (["produce"], "echo hello | ottla produce orders"),
        (["consume"], "ottla consume orders --follow"),
        (["config", "set"], "ottla config set --topic orders retention.ms=3600000"),
        (["log", "dump"], "ottla log dump orders-0/00000000000000000000.log --records"),
    ],
)
def test_help_has_examples(words: list[str], shown: str) -> None:
    done = run_ottla(*words, "--help")
    assert done.returncode == 0
    assert shown in done.stdout
