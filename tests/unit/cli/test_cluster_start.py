"""`ottla cluster start` and `ottla cluster status`."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.harness.ports import free_port, free_ports

from tests.support.commands import run_command, run_ottla
from tests.support.ottla_cluster import eventually
from tests.support.ottla_node import OTTLA

NODES = 3


@contextmanager
def started(directory: Path, port: int) -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
    """The running command and the file that it writes to; it is gone at the end, and its nodes too."""
    said = directory.with_suffix(".said")
    with said.open("wb") as out:
        process = subprocess.Popen(
            [
                *OTTLA,
                "cluster",
                "start",
                "--nodes",
                str(NODES),
                "--racks=a,b",
                f"--dir={directory}",
                f"--base-port={port}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + 90
        while "Ctrl-C" not in said.read_text():
            assert process.poll() is None, said.read_text()
            assert time.monotonic() < deadline, said.read_text()
            time.sleep(0.05)
        yield process, said
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def test_a_cluster_is_started_shown_and_stopped_with_one_command(tmp_path: Path) -> None:
    port, directory = free_ports(2 * NODES)[0], tmp_path / "cluster"
    server = f"localhost:{port + 2}"
    with started(directory, port) as (process, said):
        assert f"bootstrap servers: localhost:{port},{server},localhost:{port + 4}" in said.read_text()
        run_command("topic", "create", "t", "--partitions", "2", server=server)
        brokers = json.loads(run_command("cluster", "brokers", "--json", server=server))
        assert [(each["id"], each["rack"]) for each in brokers] == [(1, "a"), (2, "b"), (3, "a")]
        status = json.loads(run_command("cluster", "status", "--json", server=server))
        assert (status["voters"], status["in_service"], status["partitions"]) == ([1, 2, 3], [1, 2, 3], 2)
        assert "voters: 1, 2, 3" in run_command("cluster", "status", server=server)
        eventually(lambda: "2 of 1 topic" in said.read_text(), "the view shows the topic")
        _kill_node(directory, 3)
        eventually(lambda: "node 3 ended with exit code -9" in said.read_text(), "the view reports the node's end")
        eventually(lambda: "fenced: 3" in said.read_text(), "the view shows that it is fenced")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, said.read_text()
    with started(directory, port) as (process, said):
        assert "found a cluster" in said.read_text()
        assert "t" in run_command("topic", "list", server=server).split()


def _kill_node(directory: Path, number: int) -> None:
    mine = str(directory / f"node-{number}" / "server.properties")
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                words = (folder / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue  # it has ended meanwhile
            if mine in words:
                os.kill(int(folder.name), signal.SIGKILL)


def test_a_cluster_keeps_its_controllers(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"cluster_id": "b3R0bGEtaW50ZXJvcC0xMA", "controllers": 3}')
    done = run_ottla("cluster", "start", "--nodes", "1", "--dir", str(tmp_path))
    assert done.returncode == 1
    assert "has 3 controllers" in done.stderr
    (tmp_path / "cluster.json").write_text("[]")
    assert "is damaged" in run_ottla("cluster", "start", "--dir", str(tmp_path)).stderr


def test_a_cluster_that_cannot_start_says_why(tmp_path: Path) -> None:
    assert run_ottla("cluster", "start", "--nodes", "9", "--base-port", "65530").returncode == 2
    done = run_ottla("cluster", "start", "--dir", str(tmp_path / "c"), "--set", "num.io.threads=many")
    assert done.returncode == 1
    assert "num.io.threads" in done.stderr
    taken = free_port()
    with socket.socket() as occupied:
        occupied.bind(("127.0.0.1", taken))
        occupied.listen()
        done = run_ottla("cluster", "start", "--nodes", "1", "--dir", str(tmp_path / "d"), "--base-port", str(taken))
    assert done.returncode == 1
    assert "node 1 ended with exit code 1" in done.stderr
    assert "address already in use" in done.stderr.lower()
