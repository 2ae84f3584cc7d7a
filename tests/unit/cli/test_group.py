"""`ottla group`, as people and programs see it."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.protocol.messages.rpc.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.messages.rpc.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Subtopology, Topology
from tests.support.commands import run_command, run_failing_command, run_ottla

TITLES = ["TOPIC", "PARTITION", "OFFSET", "END", "LAG", "MEMBER", "CLIENT", "HOST"]


@pytest.fixture
def filled(server: str, topic: str) -> str:
    """A topic of two partitions, the first with ten records."""
    run_command("topic", "create", topic, "-p", "2", server=server)
    run_command("produce", topic, "--partition", "0", server=server, typed=b"x\n" * 10)
    return topic


def committed(server: str, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": server, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)


@contextmanager
def reading(server: str, group: str, topic: str) -> Iterator[None]:
    """A member of a group, inside."""
    consumer = Consumer({"bootstrap.servers": server, "group.id": group, "client.id": "reader"})
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    yield
    consumer.close()


def test_groups_are_listed_and_described(server: str, filled: str) -> None:
    group = f"group-{filled}"
    committed(server, group, filled, 4)
    rows = [line.split() for line in run_command("group", "list", server=server).splitlines()]
    assert rows[0] == ["GROUP", "TYPE", "STATE", "COORDINATOR"]
    assert [group, "classic", "Empty", "1"] in rows
    first, *table = run_command("group", "describe", group, server=server).splitlines()
    assert first == f"{group}: classic, Empty, 0 members"
    assert [line.split() for line in table] == [TITLES, [filled, "0", "4", "10", "6", "-", "-", "-"]]
    listed = json.loads(run_command("group", "list", "--state", "stable", "--json", server=server))
    assert group not in [each["group"] for each in listed]


def test_members_are_described_with_their_partitions(server: str, filled: str) -> None:
    group = f"group-{filled}"
    with reading(server, group, filled):
        (found,) = json.loads(run_command("group", "describe", group, "--json", server=server))
        assert (found["state"], found["type"], found["protocol"]) == ("Stable", "classic", "range")
        (member,) = found["members"]
        assert (member["client"], member["host"]) == ("reader", "127.0.0.1")
        assert member["partitions"] == [{"topic": filled, "partition": 0}, {"topic": filled, "partition": 1}]
        assert [each["member"] for each in found["partitions"]] == [member["member"]] * 2
        assert "stop its members first" in run_failing_command("group", "delete", group, server=server)
        reset = ["group", "reset-offsets", group, "-t", filled, "--to", "end"]
        assert "stop its members first" in run_failing_command(*reset, server=server)


@pytest.mark.parametrize(
    ("how", "offsets"),
    [
        (["--to", "beginning"], {0: 0, 1: 0}),
        (["--to", "end"], {0: 10, 1: 0}),
        (["--to", "7"], {0: 7, 1: 0}),
        (["--to", "99"], {0: 10, 1: 0}),
        (["--to", "1h"], {0: 0, 1: 0}),
        (["--to", "2100-01-01"], {0: 10, 1: 0}),
    ],
)
def test_offsets_are_reset_to_a_position(server: str, filled: str, how: list[str], offsets: dict[int, int]) -> None:
    group = f"group-{filled}"
    rows = json.loads(run_command("group", "reset-offsets", group, "-t", filled, *how, "--json", server=server))
    assert {row["partition"]: row["offset"] for row in rows} == offsets
    (found,) = json.loads(run_command("group", "describe", group, "--json", server=server))
    assert {each["partition"]: each["offset"] for each in found["partitions"]} == offsets


def test_offsets_are_reset_by_a_number_of_records(server: str, filled: str) -> None:
    group = f"group-{filled}"
    committed(server, group, filled, 4)
    before = run_command("group", "reset-offsets", group, "--by", "-3", "--dry-run", server=server).splitlines()
    assert before[0] == f"Would reset the offsets of group {group}:"
    assert before[2].split() == [filled, "0", "4", "1"]
    after = run_command("group", "reset-offsets", group, "--by", "3", server=server).splitlines()
    assert after[0] == f"Reset the offsets of group {group}:"
    assert after[2].split() == [filled, "0", "4", "7"]
    none = run_failing_command("group", "reset-offsets", group, "-t", filled, "--by", "1", server=server)
    assert none == (f"ottla group: group '{group}' has no committed offset in {filled}-1; use --to instead of --by")


def test_a_group_is_deleted(server: str, filled: str) -> None:
    group = f"group-{filled}"
    committed(server, group, filled, 4)
    assert run_command("group", "delete", group, server=server) == f"Deleted group {group}.\n"
    gone = run_failing_command("group", "delete", group, server=server)
    assert gone.startswith(f"ottla group: group '{group}': ")
    assert gone.endswith("; `ottla group list` lists the groups")
    assert run_command("group", "delete", group, "--if-exists", server=server) == ""
    assert "there is no such group" in run_failing_command("group", "describe", group, server=server)
    assert "has no committed offsets" in run_failing_command(
        "group", "reset-offsets", group, "--to", "end", server=server
    )


def test_invalid_usage_is_rejected(server: str) -> None:
    assert run_ottla("group", "reset-offsets", "g").returncode == 2
    done = run_ottla("group", "reset-offsets", "g", "-t", "nowhere", "--to", "nonsense", server=server)
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr


def join_streams(server: str, group: str, topic: str) -> None:
    """Become a member of a streams group that reads one topic, and get its tasks."""
    first = StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id="thread-1",
        rebalance_timeout_ms=60_000,
        topology=Topology(subtopologies=[Subtopology(subtopology_id="0", source_topics=[topic])]),
        process_id="process",
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
    )

    async def join() -> None:
        async with Cluster(server) as cluster:
            await Admin(cluster).committed_offsets(group)  # the coordinator is there after that
            answer = await cluster.send(first, node=1)
            while not answer.active_tasks:
                assert not answer.error_code, answer
                await asyncio.sleep(0.2)
                answer = await cluster.send(
                    StreamsGroupHeartbeatRequest(
                        group_id=group, member_id="thread-1", member_epoch=answer.member_epoch
                    ),
                    node=1,
                )

    asyncio.run(join())


def test_a_streams_group_is_described_with_its_tasks(server: str, filled: str) -> None:
    group = f"streams-{filled}"
    run_command("config", "set", "-g", group, "streams.initial.rebalance.delay.ms=0", server=server)
    join_streams(server, group, filled)
    assert [group, "streams", "Stable", "1"] in [
        line.split() for line in run_command("group", "list", "--type", "streams", server=server).splitlines()
    ]
    (found,) = json.loads(run_command("group", "describe", group, "--json", server=server))
    assert (found["state"], found["type"]) == ("Stable", "streams")
    assert found["members"][0]["partitions"] == [{"topic": filled, "partition": 0}, {"topic": filled, "partition": 1}]


def join_share(server: str, group: str, topic: str) -> None:
    """Become a member of a share group, and get its partitions."""

    async def join() -> None:
        async with Cluster(server) as cluster:
            await Admin(cluster).committed_offsets(group)  # the coordinator is there after that
            epoch, assigned = 0, False
            while not assigned:
                answer = await cluster.send(
                    ShareGroupHeartbeatRequest(
                        group_id=group, member_id="reader", member_epoch=epoch, subscribed_topic_names=[topic]
                    ),
                    node=1,
                )
                assert not answer.error_code, answer
                epoch, assigned = answer.member_epoch, bool(answer.assignment.topic_partitions)
                await asyncio.sleep(0.2)

    asyncio.run(join())


def test_a_share_group_is_described_with_its_members(server: str, filled: str) -> None:
    group = f"share-{filled}"
    join_share(server, group, filled)
    (found,) = json.loads(run_command("group", "describe", group, "--json", server=server))
    assert (found["state"], found["type"], found["protocol"]) == ("Stable", "share", "simple")
    assert found["members"][0]["partitions"] == [{"topic": filled, "partition": 0}, {"topic": filled, "partition": 1}]
    assert [each["offset"] for each in found["partitions"]] == [None, None], "nobody has fetched yet"
