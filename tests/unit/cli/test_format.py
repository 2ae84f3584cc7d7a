"""The command line as people type it: real processes, their words and their exit codes."""

import importlib
import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

import ottla
from ottla.cli.main import COMMANDS
from ottla.node.formatting import read_bootstrap
from ottla.protocol.messages.records.metadata_records import UserScramCredentialRecord
from ottla.storage.directories.node_files import read_meta
from ottla.storage.disk import SystemDisk

CLUSTER_ID = "b3R0bGEtaW50ZXJvcC0xMA"
FILE = """\
process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.quorum.bootstrap.servers=localhost:9093
"""


def run(*arguments: str, environment: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "ottla", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **(environment or {})},
    )


@pytest.fixture
def properties(tmp_path: Path) -> str:
    path = tmp_path / "server.properties"
    path.write_text(f"{FILE}log.dirs={tmp_path}/a,{tmp_path}/b\nnum.partition=3\n")
    return str(path)


def test_a_node_is_formatted_with_the_flags_of_kafka_storage(properties: str, tmp_path: Path) -> None:
    flags = ["-t", CLUSTER_ID, "-c", properties, "--standalone", "-r", "4.0", "-f", "share.version=1"]
    done = run("format", *flags, "-S", "SCRAM-SHA-256=[name=alice,password=secret]")
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        f"Formatting dynamic metadata voter directory {tmp_path}/a with metadata.version 4.0-IV3.",
        f"Formatting data directory {tmp_path}/b with metadata.version 4.0-IV3.",
    ]
    assert done.stderr == (
        f"warning: {properties}, line 7: num.partition is not a setting and is ignored; did you mean num.partitions?\n"
    )
    records = read_bootstrap(SystemDisk(), f"{tmp_path}/b")
    assert isinstance(records[-1], UserScramCredentialRecord)
    assert records[-1].name == "alice"

    again = run("format", *flags)
    assert again.returncode == 1
    assert again.stderr.splitlines()[-1].startswith(f"ottla format: {tmp_path}/a is already formatted; ")
    assert again.stdout == ""
    ignoring = run("format", *flags, "--ignore-formatted")
    assert (ignoring.returncode, ignoring.stdout) == (0, "All of the log directories are already formatted.\n")


def test_a_one_node_cluster_needs_neither_file_nor_id(tmp_path: Path) -> None:
    done = run("format", "--set", "broker.rack=r", environment={"XDG_DATA_HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    meta = read_meta(SystemDisk(), f"{tmp_path}/ottla/node-1")
    assert meta is not None
    assert done.stdout.splitlines() == [
        f"The cluster's id is {meta.cluster_id}.",
        f"Formatting dynamic metadata voter directory {tmp_path}/ottla/node-1 with metadata.version 4.3-IV0.",
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["-t", "x", "-c", "/nowhere"], 1, "ottla format: /nowhere cannot be read: No such file or directory"),
        (["-t", "x", "--set", "node.id=-1"], 1, "ottla format: --set: node.id=-1: Value must be at least 0"),
        (["-t", "x", "-r", "1.0"], 1, "ottla format: unknown release version '1.0'; "),
        (["-c", "/nowhere"], 2, "ottla format: --cluster-id is missing"),
        (["-t"], 2, "expected one argument"),
        (["-t", "x", "-s", "-N"], 2, "not allowed with argument"),
        (["-t", "x", "-f", "group.version"], 2, "'group.version' is not NAME=LEVEL"),
        (["-t", "x", "--set", "oops"], 2, "'oops' is not NAME=VALUE"),
    ],
)
def test_an_error_is_one_sentence_and_an_exit_code(arguments: list[str], code: int, words: str, tmp_path: Path) -> None:
    done = run("format", *arguments, environment={"XDG_DATA_HOME": str(tmp_path)})
    assert done.returncode == code
    assert words in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_random_uuid_prints_an_id() -> None:
    done = run("random-uuid")
    assert (done.returncode, len(done.stdout.strip()), done.stderr) == (0, 22, "")


def test_the_version_is_that_of_the_package() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"ottla {ottla.__version__}\n")


def test_without_a_command_the_usage_is_shown() -> None:
    done = run()
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ottla ")


def test_help_names_every_command() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert all(command.name in done.stdout for command in COMMANDS)


def test_the_console_script_is_the_same_function() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    module, _, name = project["project"]["scripts"]["ottla"].partition(":")
    assert getattr(importlib.import_module(module), name) is importlib.import_module("ottla.cli.main").main
