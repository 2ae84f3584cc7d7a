"""`ottla produce` and `ottla consume`: lines in, lines out."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import run_command, run_failing_command, run_ottla


def test_lines_are_produced_and_consumed(server: str, topic: str) -> None:
    run_command("topic", "create", topic, server=server)
    assert run_command("produce", topic, server=server, typed=b"one\ntwo\r\n\nfour") == ""
    assert run_command("consume", topic, "--format", "value", server=server) == "one\ntwo\n\nfour\n"
    lines = run_command("consume", topic, server=server).splitlines()
    assert [line.split("  ")[0] for line in lines] == ["0@0", "0@1", "0@2", "0@3"]
    assert [line.split("  ")[2:] for line in lines] == [
        ["null", "one"],
        ["null", "two"],
        ["null", ""],
        ["null", "four"],
    ]
    assert lines[0].split("  ")[1].endswith("Z")


def test_keys_headers_and_nulls(server: str, topic: str) -> None:
    run_command("topic", "create", topic, server=server)
    flags = ["--key-separator", ":", "--headers", "--null", "NULL", "-H", "all=1"]
    typed = b"a=1,b\tk1:v1\n\tk2:NULL\n\tNULL:v:3\n"
    written = json.loads(run_command("produce", topic, *flags, "--json", server=server, typed=typed))
    assert written == {
        "topic": topic,
        "records": 3,
        "partitions": [{"partition": 0, "first_offset": 0, "last_offset": 2}],
    }
    found = [json.loads(line) for line in run_command("consume", topic, "--format", "json", server=server).splitlines()]
    assert [(each["key"], each["value"]) for each in found] == [("k1", "v1"), ("k2", None), (None, "v:3")]
    assert found[0]["headers"] == [
        {"name": "all", "value": "1"},
        {"name": "a", "value": "1"},
        {"name": "b", "value": None},
    ]
    assert (found[0]["topic"], found[0]["partition"], found[0]["offset"]) == (topic, 0, 0)
    assert found[0]["timestamp_type"] == "create"
    text = run_command("consume", topic, "--count", "1", server=server)
    assert text.rstrip("\n").split("  ")[2:] == ["k1", "v1", "all=1 a=1 b=null"]


def test_json_round_trips_bytes_that_are_not_utf_8(server: str, topic: str) -> None:
    run_command("topic", "create", topic, topic + "-copy", "-p", "2", server=server)
    lines = [
        {"key": {"base64": "/w=="}, "value": "text", "headers": [{"name": "h", "value": {"base64": "gIA="}}]},
        {"value": {"a": [1, 2]}, "timestamp": 1_000_000},
        {"key": "k"},
    ]
    typed = "\n".join(map(json.dumps, lines)).encode()
    run_command("produce", topic, "--format", "json", "--partition", "1", server=server, typed=typed)
    first = run_command("consume", topic, "--json", server=server)
    found = [json.loads(line) for line in first.splitlines()]
    assert [each["partition"] for each in found] == [1, 1, 1]
    assert [each["key"] for each in found] == [{"base64": "/w=="}, None, "k"]
    assert [each["value"] for each in found] == ["text", '{"a":[1,2]}', None]
    assert found[1]["timestamp"] == 1_000_000
    run_command("produce", topic + "-copy", "--format", "json", "-p", "1", server=server, typed=first.encode())
    assert run_command("consume", topic + "-copy", "--json", server=server) == first.replace(topic, topic + "-copy")


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_file_is_produced_with_compression(server: str, topic: str, compression: str, tmp_path: Path) -> None:
    run_command("topic", "create", topic, server=server)
    content = "".join(f"line {number}\n" for number in range(2000))
    (tmp_path / "lines").write_text(content)
    run_command("produce", topic, "--file", str(tmp_path / "lines"), "-z", compression, server=server)
    assert run_command("consume", topic, "--format", "value", server=server) == content


def test_produce_without_acknowledgements(server: str, topic: str) -> None:
    run_command("topic", "create", topic, server=server)
    for acks in ("1", "0"):
        run_command("produce", topic, "--acks", acks, "--key", "k", "--whole", server=server, typed=b"a\nb\n")
    said = run_command("consume", topic, "--follow", "--from", "beginning", "--count", "2", "--json", server=server)
    found = [json.loads(line) for line in said.splitlines()]
    assert [(each["key"], each["value"]) for each in found] == [("k", "a\nb\n")] * 2


def test_consume_starts_at_the_requested_position(server: str, topic: str) -> None:
    run_command(
        "topic", "create", topic, "-p", "2", "--set", "retention.ms=-1", server=server
    )  # the records are from 1970
    lines = [json.dumps({"value": str(number), "timestamp": 1_000_000 + number * 1000}) for number in range(6)]
    typed = "\n".join(lines).encode()
    for partition in ("0", "1"):
        run_command("produce", topic, "-p", partition, "--format", "json", server=server, typed=typed)

    def read(*flags: str) -> str:
        return run_command("consume", topic, "-p", "0", "--format", "value", *flags, server=server).replace("\n", "")

    assert read() == read("--from", "beginning") == "012345"
    assert read("--from", "end") == ""
    assert read("--from", "4") == "45"
    assert read("--from", "4", "--count", "1") == "4"
    assert read("--from", "@1002500") == "345"
    assert read("--from", "1970-01-01T00:16:43+00:00") == read("--from", "1970-01-01T00:16:43") == "345"
    assert read("--from", "1h") == ""
    assert read("--last", "2") == "45"
    both = run_command("consume", topic, "--last", "1", "--format", "value", server=server)
    assert both == "5\n5\n"


def test_follow_prints_new_records_until_interrupted(server: str, topic: str) -> None:
    run_command("topic", "create", topic, server=server)
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla", "consume", topic, "--follow", "--from", "beginning", "--format", "value"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "OTTLA_BOOTSTRAP_SERVER": server},
        # Shells let what they run in the background ignore it, and with it the tests and all that they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        for word in (b"first\n", b"second\n"):
            run_command("produce", topic, server=server, typed=word)
            assert process.stdout.readline() == word
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stderr.read() == b""


def test_a_line_is_written_before_the_next_one_arrives(server: str, topic: str) -> None:
    run_command("topic", "create", topic, server=server)
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla", "produce", topic],
        stdin=subprocess.PIPE,
        env={**os.environ, "OTTLA_BOOTSTRAP_SERVER": server},
    )
    with process:
        assert process.stdin is not None
        process.stdin.write(b"early\n")
        process.stdin.flush()
        found = run_command(
            "consume", topic, "--follow", "--from", "beginning", "-n", "1", "--format", "value", server=server
        )
        assert found == "early\n"
        process.stdin.close()
        assert process.wait(20) == 0


def test_a_closed_pipe_ends_the_command_quietly(server: str, topic: str) -> None:
    run_command("topic", "create", topic, server=server)
    run_command("produce", topic, server=server, typed=b"line\n" * 50_000)
    process = subprocess.Popen(
        f"{sys.executable} -m ottla consume {topic} | head -1",
        shell=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "OTTLA_BOOTSTRAP_SERVER": server},
    )
    out, err = process.communicate(timeout=30)
    assert (out.count(b"\n"), err) == (1, b"")


def test_an_error_is_one_sentence(server: str, topic: str) -> None:
    run_command("topic", "create", topic, server=server)
    none = run_failing_command("consume", topic + "x", server=server)
    assert none == f"ottla consume: topic '{topic}x': there is no such topic; `ottla topic list` lists the topics"
    assert "no such topic" in run_failing_command("produce", topic + "x", server=server, typed=b"x\n")
    assert "has no partition 4" in run_failing_command("consume", topic, "-p", "4", server=server)
    gone = run_failing_command("consume", topic, "--from", "7", "--follow", server=server)
    assert gone.startswith(f"ottla consume: topic '{topic}', partition 0: offset 7 is out of range: ")
    bad = run_failing_command("produce", topic, "-K", ":", server=server, typed=b"k:v\nno key\n")
    assert bad == "ottla produce: line 2: no ':' after the key; the lines before it were written"
    assert run_command("consume", topic, "--format", "value", server=server) == "v\n"
    assert "line 1: invalid JSON" in run_failing_command(
        "produce", topic, "--format", "json", server=server, typed=b"{\n"
    )
    assert "cannot be read" in run_failing_command("produce", topic, "--file", "/nowhere", server=server)
    for arguments in (["consume", topic, "--from", "soon"], ["produce", topic, "-k", "a", "-K", ":"]):
        assert run_ottla(*arguments, server=server).returncode == 2
