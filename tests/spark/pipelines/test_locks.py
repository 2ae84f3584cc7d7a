"""Locks are released when their process ends, for whatever reason."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.spark.pipelines.locks import LockHeld, hold_lock, is_held, stop_holder


def test_one_process_holds_a_lock_until_it_releases_it(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "lock"
    assert not is_held(path)
    with hold_lock(path):
        assert is_held(path)
        with pytest.raises(LockHeld), hold_lock(path):
            pass
        assert is_held(path), "a failed attempt must not release the lock"
    assert not is_held(path)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_an_inherited_lock_is_released_when_the_child_ends(tmp_path: Path, how: signal.Signals) -> None:
    path = tmp_path / "lock"
    with hold_lock(path) as lock:
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], pass_fds=(lock,))
    try:
        assert is_held(path)
        assert stop_holder(path, process.pid, how, 20)
        assert not is_held(path)
    finally:
        process.kill()
        process.wait()


def test_a_process_that_ignores_the_signal_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    with hold_lock(path) as lock:
        process = subprocess.Popen([sys.executable, "-c", deaf], pass_fds=(lock,), stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        assert not stop_holder(path, process.pid, signal.SIGTERM, 0.2)
    finally:
        process.kill()
        process.communicate()
