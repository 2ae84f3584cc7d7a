"""Locks that live as long as a process, however it ends."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.spark.pipelines.locks import Taken, end_holder, held, is_held


def test_a_lock_is_held_by_one_and_free_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "lock"
    assert not is_held(path)
    with held(path):
        assert is_held(path)
        with pytest.raises(Taken), held(path):
            pass
        assert is_held(path), "who did not get it does not free it"
    assert not is_held(path)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_lock_that_was_passed_on_is_free_when_that_process_is_gone(tmp_path: Path, how: signal.Signals) -> None:
    path = tmp_path / "lock"
    with held(path) as lock:
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], pass_fds=(lock,))
    try:
        assert is_held(path)
        assert end_holder(path, process.pid, how, 20)
        assert not is_held(path)
    finally:
        process.kill()
        process.wait()


def test_a_process_that_does_not_end_is_told(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    with held(path) as lock:
        process = subprocess.Popen([sys.executable, "-c", deaf], pass_fds=(lock,), stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        assert not end_holder(path, process.pid, signal.SIGTERM, 0.2)
    finally:
        process.kill()
        process.communicate()
