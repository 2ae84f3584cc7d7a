"""Debian's kcat lists topics, writes and reads records, joins groups, and commits transactions."""

import json
import shutil
import subprocess
from typing import Any

import pytest
from bench.harness.kafka_jars import install

from tests.conformance.clients.running import ALL_CODECS
from tests.conformance.clients.topics import create_topic, read_committed_offsets
from tests.support.ottla_node import OttlaNode

TIMEOUT_S = 60
SMALL_WAITS = ("-X", "fetch.wait.max.ms=100")


@pytest.fixture(scope="module", autouse=True)
def _require_kcat() -> None:
    if shutil.which("kcat") is None:
        install("kcat")
    if shutil.which("kcat") is None:
        pytest.skip("kcat is not installed, and cannot be installed")


def run_kcat(node: OttlaNode, *arguments: str, typed: str = "") -> str:
    command = ["kcat", "-b", node.address, *arguments]
    finished = subprocess.run(command, input=typed, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def write(node: OttlaNode, topic: str, lines: list[str], *arguments: str) -> None:
    run_kcat(node, "-P", "-t", topic, "-K", ":", "-Z", *arguments, typed="".join(f"{line}\n" for line in lines))


def read(node: OttlaNode, topic: str, *arguments: str) -> list[dict[str, Any]]:
    """Return all records up to the end of the log."""
    printed = run_kcat(node, "-C", "-t", topic, "-e", "-q", "-J", *SMALL_WAITS, *arguments)
    return [json.loads(line) for line in printed.splitlines()]


@pytest.mark.parametrize("codec", ALL_CODECS)
def test_records_with_keys_headers_and_nulls_are_read_back(node: OttlaNode, codec: str) -> None:
    topic = f"kcat-{codec}"
    create_topic(node, topic)
    write(node, topic, ["k:v", "null value:", *(f"{n}:value {n}" for n in range(200))], "-z", codec, "-H", "h=1")
    records = read(node, topic)
    assert [record["offset"] for record in records] == list(range(202))
    assert (records[0]["key"], records[0]["payload"]) == ("k", "v")
    assert (records[1]["key"], records[1]["payload"]) == ("null value", None)
    assert records[201]["payload"] == "value 199"
    assert all(record["headers"] == ["h", "1"] for record in records)


def test_metadata_and_offsets_by_time_are_listed(node: OttlaNode) -> None:
    create_topic(node, "kcat-listed", 3)
    listed = json.loads(run_kcat(node, "-L", "-J", "-t", "kcat-listed"))
    (topic,) = listed["topics"]
    assert [part["partition"] for part in topic["partitions"]] == [0, 1, 2]
    assert listed["brokers"] == [{"id": 1, "name": node.address}]
    write(node, "kcat-listed", ["a:1", "b:2"], "-p", "1")
    assert "kcat-listed [1] offset 0" in run_kcat(node, "-Q", "-t", "kcat-listed:1:0")
    assert "kcat-listed [1] offset 2" in run_kcat(node, "-Q", "-t", "kcat-listed:1:-1")


def test_a_group_continues_from_its_committed_offsets(node: OttlaNode) -> None:
    create_topic(node, "kcat-group", 2)
    for lines in (["a:1", "b:2", "c:3"], ["d:4", "e:5", "f:6"]):
        write(node, "kcat-group", lines)
        options = ("-q", "-e", "-K", ":", "-X", "auto.offset.reset=earliest", *SMALL_WAITS)
        read_now = run_kcat(node, "-G", "kcat", *options, "kcat-group").split()
        assert sorted(read_now) == lines
    assert sum(read_committed_offsets(node, "kcat", "kcat-group", 2)) == 6


def test_committed_transactions_are_read(node: OttlaNode) -> None:
    create_topic(node, "kcat-transacted")
    write(node, "kcat-transacted", ["a:1", "b:2"], "-X", "transactional.id=kcat")
    write(node, "kcat-transacted", ["c:3"], "-X", "transactional.id=kcat")
    records = read(node, "kcat-transacted", "-X", "isolation.level=read_committed")
    assert [(record["key"], record["offset"]) for record in records] == [("a", 0), ("b", 1), ("c", 3)]
