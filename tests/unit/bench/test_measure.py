"""The usage of processes includes that of their children, and nothing else."""

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bench.harness import measure

# More than the 0.3 s that the tests check: the system rounds the usage of ended children down to a tick.
BURN = "import time\nwhile time.process_time() < 0.35: pass\n"
# Starts a child that ends and a child that keeps running, then prints "done".
PARENT = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {BURN!r}])
rest = "print('done', flush=True)\\ninput()"
child = subprocess.Popen([sys.executable, "-c", {BURN!r} + rest], stdin=subprocess.PIPE)
sys.stdin.readline()
child.communicate(b"\\n")
"""


def test_cpu_includes_running_and_ended_children() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    try:
        assert parent.stdout.readline() == b"done\n"
        assert len(measure.process_tree([parent.pid])) == 2
        assert measure.cpu_seconds([parent.pid]) >= 0.6
        assert measure.resident_bytes([parent.pid]) > measure.proportional_bytes([parent.pid]) > 0
    finally:
        parent.communicate(b"\n", timeout=30)


@pytest.mark.parametrize("waits", [True, False])
def test_a_child_that_ends_does_not_reduce_the_usage(waits: bool) -> None:
    """The child was idle, so nothing was used, whether or not its parent waits for it."""
    how = "" if waits else "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)"
    rest = "import sys\nsys.stdout.write('done')\nsys.stdout.flush()\nsys.stdin.read()"
    code = f"""
import os, subprocess, sys
{how}
child = subprocess.Popen([sys.executable, "-c", {BURN!r} + {rest!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.read(4)
print("burnt", flush=True)
sys.stdin.readline()
child.stdin.close()
child.wait()
print("gone", flush=True)
sys.stdin.readline()
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    assert parent.stdin is not None
    try:
        assert parent.stdout.readline() == b"burnt\n"
        before = measure.cpu_usage([parent.pid])
        assert sum(usage.own for usage in before.values()) >= 0.3
        parent.stdin.write(b"\n")
        parent.stdin.flush()
        assert parent.stdout.readline() == b"gone\n"
        after = measure.cpu_usage([parent.pid])
        assert len(after) == 1
        assert 0 <= measure.spent_seconds(before, after) < 0.1
    finally:
        parent.communicate(b"\n", timeout=30)


def test_cpu_is_finer_than_a_tick() -> None:
    before = measure.cpu_seconds([os.getpid()])
    used = time.process_time()
    while time.process_time() < used + 0.002:
        pass
    measured = measure.cpu_seconds([os.getpid()]) - before
    assert measured >= 0.002
    assert abs(measured - round(measured, 2)) > 1e-9, "whole ticks"


def test_an_ended_process_uses_nothing() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert measure.cpu_seconds([gone.pid]) == 0
    assert measure.resident_bytes([gone.pid]) == 0


def test_holes_in_files_take_no_disk(tmp_path: Path) -> None:
    (tmp_path / "full").write_bytes(os.urandom(100_000))
    with (tmp_path / "hollow").open("wb") as hollow:
        hollow.truncate(50_000_000)
    assert 100_000 <= measure.disk_bytes(tmp_path) < 1_000_000


def test_servers_and_clients_are_measured_separately() -> None:
    figures: dict[str, float] = {}
    server = subprocess.Popen(["sleep", "60"])
    try:
        with measure.measured([server.pid], figures):
            subprocess.run([sys.executable, "-c", BURN], check=True)
    finally:
        server.kill()
        server.wait()
    assert figures["server_cpu_s"] < 0.01
    assert figures["client_cpu_s"] >= 0.3
    assert figures["rss_peak_mb"] >= figures["rss_mb"] > 0


def test_touched_memory_is_released() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF)
    resident = measure.resident_bytes([os.getpid()])
    measure.touch_memory(64 << 20)
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert after.ru_minflt > before.ru_minflt  # one per page, or fewer if pages are large
    assert after.ru_maxrss * 1024 >= 64 << 20
    assert measure.resident_bytes([os.getpid()]) < resident + (32 << 20)
