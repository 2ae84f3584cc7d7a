"""`ottla config`, `ottla log` and `ottla cluster`."""

import json
from pathlib import Path

from tests.support.commands import run_command, run_failing_command, run_ottla
from tests.support.ottla_node import CLUSTER_ID, OttlaNode


def test_settings_of_a_topic_are_set_shown_and_unset(server: str, topic: str) -> None:
    run_command("topic", "create", topic, server=server)
    done = run_command("config", "set", "-t", topic, "retention.ms=1000", "cleanup.policy+=compact", server=server)
    assert done == f"Changed 2 settings of topic '{topic}'.\n"
    assert run_command("config", "describe", "-t", topic, server=server).splitlines() == [
        "SETTING              VALUE           FROM",
        "cleanup.policy       delete,compact  topic",
        "min.insync.replicas  1               cluster",
        "retention.ms         1000            topic",
    ]
    run_command("config", "set", "-t", topic, "cleanup.policy-=delete", server=server)
    run_command("config", "unset", "-t", topic, "retention.ms", server=server)
    found = json.loads(run_command("config", "describe", "-t", topic, "--json", server=server))
    assert [(each["name"], each["value"]) for each in found if each["source"] == "topic"] == [
        ("cleanup.policy", "compact")
    ]
    everything = json.loads(run_command("config", "describe", "-t", topic, "--json", "--all", "--docs", server=server))
    assert len(everything) > 25
    assert all("documentation" in each for each in everything)
    (one,) = json.loads(run_command("config", "describe", "-t", topic, "segment.bytes", "--json", server=server))
    assert (one["name"], one["source"]) == ("segment.bytes", "default")


def test_settings_of_brokers_and_cluster(server: str) -> None:
    found = json.loads(run_command("config", "describe", "--broker", "1", "--json", server=server))
    assert {each["name"]: each["value"] for each in found}["auto.create.topics.enable"] == "false"
    assert run_command("config", "set", "--cluster", "log.retention.ms=77000", server=server) == (
        "Changed 1 setting of the cluster's default.\n"
    )
    assert "log.retention.ms" in run_command("config", "describe", "--cluster", server=server)
    run_command("config", "unset", "--cluster", "log.retention.ms", server=server)
    run_command("config", "set", "--broker", "1", "log.retention.ms=78000", "--dry-run", server=server)
    assert "broker 9 is not running" in run_failing_command("config", "describe", "--broker", "9", server=server)


def test_an_unknown_setting_is_rejected(server: str, topic: str) -> None:
    run_command("topic", "create", topic, server=server)
    assert run_failing_command("config", "set", "-t", topic, "retention.ms=soon", server=server).endswith(
        "(INVALID_CONFIG)"
    )
    assert run_ottla("config", "set", "-t", topic, "retention.ms", server=server).returncode == 2
    assert run_ottla("config", "describe", server=server).returncode == 2


def test_offsets_and_their_deletion(server: str, topic: str) -> None:
    run_command("topic", "create", topic, "-p", "2", server=server)
    line = json.dumps({"value": "x", "timestamp": 1_000_000}).encode() + b"\n"
    run_command("produce", topic, "-p", "0", "--format", "json", server=server, typed=line * 5)
    assert run_command("log", "offsets", topic, server=server).splitlines() == [
        f"{'TOPIC':{len(topic)}}  PARTITION  EARLIEST  LATEST  OFFSETS  LATEST TIMESTAMP",
        f"{topic}          0         0       5        5  1970-01-01T00:16:40.000Z",
        f"{topic}          1         0       0        0  -",
    ]
    assert json.loads(
        run_command("log", "delete-records", topic, "-p", "0", "--before", "2", "--json", server=server)
    ) == [{"topic": topic, "partition": 0, "earliest": 2}]
    run_command("log", "delete-records", topic, "--before", "end", server=server)
    (found,) = json.loads(run_command("log", "offsets", topic, "-p", "0", "--json", server=server))
    assert (found["earliest"], found["latest"]) == (5, 5)
    assert topic in run_command("log", "offsets", server=server)
    assert "OFFSET_OUT_OF_RANGE" in run_failing_command("log", "delete-records", topic, "--before", "9", server=server)


def test_log_directories_and_their_contents(node: OttlaNode, server: str, topic: str) -> None:
    run_command("topic", "create", topic, server=server)
    run_command("produce", topic, server=server, typed=b"x\n")
    (found,) = json.loads(run_command("log", "dirs", "--topic", topic, "--json", server=server))
    assert (found["broker"], found["path"], found["error"]) == (1, str(node.directory), None)
    (replica,) = found["replicas"]
    assert replica["size_bytes"] > 61
    title, row = run_command("log", "dirs", server=server).splitlines()
    assert title.split() == ["BROKER", "DIRECTORY", "PARTITIONS", "SIZE", "FREE", "STATE"]
    assert row.split()[-1] == "online"
    assert f"{topic}-0" in run_command("log", "dirs", "--partitions", server=server)


def test_segments_are_dumped_and_damage_is_found(node: OttlaNode, server: str, topic: str, tmp_path: Path) -> None:
    run_command("topic", "create", topic, server=server)
    run_command("produce", topic, "-K", ":", "-H", "h=1", "-z", "lz4", server=server, typed=b"k1:v1\nk2:v2\n")
    file = node.directory / f"{topic}-0" / "00000000000000000000.log"
    lines = run_command("log", "dump", str(file.parent), "--records", server=server).splitlines()
    assert lines[0] == str(file)
    assert lines[1].startswith("  0-1, 2 records, ")
    assert " bytes at 0, lz4, " in lines[1]
    assert [line.split("  ")[-3:] for line in lines[2:4]] == [["k1", "v1", "h=1"], ["k2", "v2", "h=1"]]
    assert lines[4] == "  1 batch, 2 records, no damage"
    (batch,) = map(json.loads, run_command("log", "dump", str(file), "-r", "--json", server=server).splitlines())
    assert (batch["base_offset"], batch["last_offset"], batch["compression"]) == (0, 1, "lz4")
    assert [each["value"] for each in batch["records"]] == ["v1", "v2"]

    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    damaged = tmp_path / file.name
    damaged.write_bytes(content)
    done = run_ottla("log", "dump", str(damaged), str(file))
    assert done.returncode == 1
    assert f"DAMAGED: {damaged} is corrupt at byte 0: the header's CRC is" in done.stdout
    assert "no damage" in done.stdout
    assert done.stderr == "ottla log: 1 of 2 files damaged\n"
    assert "does not exist" in run_failing_command("log", "dump", "/nowhere", server=server)
    (tmp_path / "empty").mkdir()
    assert "no segment files" in run_failing_command("log", "dump", str(tmp_path / "empty"), server=server)


def test_the_metadata_log_is_dumped_as_metadata_records(node: OttlaNode, server: str, topic: str) -> None:
    run_command("topic", "create", topic, server=server)
    dumped = run_command("log", "dump", str(node.directory / "__cluster_metadata-0"), "--records", server=server)
    assert f"TopicRecord(name='{topic}'" in dumped


def test_the_cluster_is_described(server: str) -> None:
    assert run_command("cluster", "describe", server=server).splitlines() == [
        f"Cluster {CLUSTER_ID}, 1 broker",
        "BROKER  ADDRESS" + " " * (len(server) - 7) + "  RACK  STATE",
        f"     1  {server}  -     up",
    ]
    found = json.loads(run_command("cluster", "describe", "--json", server=server))
    assert (found["cluster_id"], found["controller"]) == (CLUSTER_ID, 1)
    (broker,) = json.loads(run_command("cluster", "brokers", "--json", server=server))
    assert broker == {"id": 1, "host": "127.0.0.1", "port": int(server.split(":")[1]), "rack": None, "fenced": False}
    features = {each["name"]: each for each in json.loads(run_command("cluster", "features", "--json", server=server))}
    assert features["metadata.version"]["level"] >= 25
    quorum = json.loads(run_command("cluster", "quorum", "--json", server=server))
    assert (quorum["leader_id"], [each["id"] for each in quorum["members"]]) == (1, [1])
    assert "leader" in run_command("cluster", "quorum", server=server)
